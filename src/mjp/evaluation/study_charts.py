"""The position study of a model, and attention maps of several, as pictures."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mjp.common.charts import COLOURS, QUIET, pyplot, save_chart, tidy
from mjp.evaluation.positions import principal_components, similarity, spectrum
from mjp.method.localization import grid_targets
from mjp.method.model import MJP


def draw_positions(
    model: MJP, table: Tensor, grid: tuple[int, int], umap: Tensor | None, title: str, path: Path
) -> None:
    """Components and UMAP coloured by row and column, similarities, spectrum, and what the DAL head reads."""
    figure, axes = pyplot().subplots(2, 3, figsize=(13.5, 8.6), layout="constrained")
    scores, shares = principal_components(table)
    label = f"components 1, 2 ({100 * shares[0]:.0f} %, {100 * shares[1]:.0f} %)"
    _scatter(axes[0, 0], scores, grid, "row", label)
    _scatter(axes[0, 1], scores, grid, "column", label)
    if umap is not None:
        _scatter(axes[0, 2], umap, grid, "row", "UMAP")
    else:
        _scatter(axes[0, 2], scores[:, 1:], grid, "row", f"components 2, 3 ({100 * shares[2]:.0f} %)")
    axes[1, 0].imshow(_mosaic(similarity(table), grid), cmap="RdBu_r", vmin=-1, vmax=1)
    axes[1, 0].set(title="cosine similarity: one small map per patch", xticks=[], yticks=[])
    values = spectrum(table)[: len(table) - 1]  # centring takes one dimension away
    axes[1, 1].semilogy(range(1, len(values) + 1), values.clamp(min=1e-6), color=COLOURS[0])
    axes[1, 1].set(title="singular values, largest = 1", xlabel="number")
    tidy(axes[1, 1])
    _draw_localizer(axes[1, 2], model, table, grid)
    figure.suptitle(title)
    save_chart(figure, path, dpi=110)


def draw_attention(maps: dict[str, Tensor], pictures: Tensor, path: Path) -> None:
    """One row per picture and model: the picture in [0, 1], then a map for each head, (B, heads, h, w)."""
    heads = max(m.shape[1] for m in maps.values())
    rows = len(pictures) * len(maps)
    figure, axes = pyplot().subplots(
        rows, 1 + heads, figsize=(1.9 * (1 + heads), 1.9 * rows + 0.4), squeeze=False, layout="constrained"
    )
    for axis in axes.flat:
        axis.axis("off")
    for i, picture in enumerate(pictures):
        for j, (name, heads_of_model) in enumerate(maps.items()):
            row = axes[i * len(maps) + j]
            row[0].imshow(picture.permute(1, 2, 0))
            row[0].set_title(name, fontsize=9)
            for h, attention in enumerate(heads_of_model[i]):
                row[1 + h].imshow(attention, cmap="magma", interpolation="nearest", vmin=0)
                if i == 0:
                    row[1 + h].set_title(f"head {h + 1}", fontsize=9)
    figure.suptitle("class token → patches, last block (each map on its own scale, from 0)")
    save_chart(figure, path, dpi=110)


def _scatter(axis: Any, points: Tensor, grid: tuple[int, int], by: str, label: str) -> None:
    """The first two coordinates, neighbours joined, coloured by row or column."""
    places = grid_targets(grid, unit=False, device=torch.device("cpu"))
    lattice = points[:, :2].view(*grid, 2)
    for lines in (lattice, lattice.transpose(0, 1)):
        for line in lines:
            axis.plot(line[:, 0], line[:, 1], color=QUIET, linewidth=0.5, zorder=1)
    dots = axis.scatter(
        points[:, 0], points[:, 1], c=places[:, 0 if by == "row" else 1], cmap="viridis", s=26, zorder=2
    )
    axis.figure.colorbar(dots, ax=axis, label=by)
    axis.set(title=label, xticks=[], yticks=[])


def _mosaic(similarities: Tensor, grid: tuple[int, int]) -> Tensor:
    """(N, N) similarities as an h×w mosaic of h×w maps with gaps between them."""
    height, width = grid
    maps = torch.full((height, width, height + 1, width + 1), torch.nan, dtype=similarities.dtype)
    maps[:, :, :height, :width] = similarities.view(height, width, height, width)
    return maps.permute(0, 2, 1, 3).reshape(height * (height + 1), width * (width + 1))[:-1, :-1]


def _draw_localizer(axis: Any, model: MJP, table: Tensor, grid: tuple[int, int]) -> None:
    """Where the model's DAL head reads each position to be, joined to where it is."""
    if model.localizer is None:
        axis.set(title="no DAL head")
        axis.axis("off")
        return
    unit = model.config.localize_targets == "unit"
    targets = grid_targets(grid, unit=unit, device=torch.device("cpu"))
    with torch.no_grad():
        weight = next(model.parameters())
        read = model.localizer(table.to(weight), targets.to(weight)).cpu().to(targets)
    for (y, x), (v, u) in zip(targets.tolist(), read.tolist(), strict=True):
        axis.plot([x, u], [y, v], color=COLOURS[1], linewidth=0.8)
    axis.scatter(targets[:, 1], targets[:, 0], s=14, color=QUIET, label="place")
    axis.scatter(read[:, 1], read[:, 0], s=14, color=COLOURS[1], label="read by the DAL head")
    error = (read - targets).abs().sum(1).mean().item()
    axis.set(title=f"DAL head, mean L1 error {error:.2f}")
    axis.invert_yaxis()
    axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=2)
