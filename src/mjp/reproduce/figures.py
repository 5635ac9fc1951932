"""The figures of `mjp reproduce`: γ in inference, convergence, and what position embeddings look like."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import orthogonal_procrustes

from mjp.common.charts import COLOURS, pyplot, save_chart, tidy
from mjp.reproduce.cell_file import Cells
from mjp.reproduce.collect import values_of
from mjp.reproduce.scale import Scale

ACROSS = 3  # runs side by side
STYLES = ("-", "--", ":")


def draw_figures(scale: Scale, cells: Cells, folder: Path) -> None:
    """Every figure for which there are cells."""
    runs = {name: seeds for name, seeds in cells.items() if seeds}
    curves = {name: runs[name] for name in scale.curves if name in runs}
    if curves:
        _draw_inference(scale, curves, folder / "inference.png")
    if curves and max(len(cell["figures"]["curve"]) for seeds in curves.values() for cell in seeds.values()) > 2:
        _draw_convergence(scale, curves, folder / "convergence.png")
    if columns := _first_seeds(runs, "pca"):
        _draw_positions(columns, folder / "positions.png")
    if columns := _first_seeds(runs, "attention"):
        _draw_attention(columns, folder / "attention.png")


def _draw_inference(scale: Scale, runs: Cells, path: Path) -> None:
    """Accuracy and consistency over γ in inference, bands of one standard deviation over seeds."""
    plt = pyplot()
    figure, axes = plt.subplots(2, 1, figsize=(6.4, 8.6), layout="constrained", sharex=True)
    ratios = sorted({*scale.ratios, *scale.sweep})
    for axis, name, label in zip(axes, ("top1", "consistency"), ("top-1, %", "consistency, %"), strict=True):
        for line, (run, seeds) in zip(_lines(scale, runs), runs.items(), strict=True):
            rows = [[100 * _mean(cell, f"{name}@{ratio:g}") for ratio in ratios] for cell in seeds.values()]
            start = [[100 * _mean(cell, "top1") if name == "top1" else 100.0] for cell in seeds.values()]
            _band(axis, [0.0, *ratios], np.hstack([start, rows]), line, _label(scale, run))
        axis.set(ylabel=label)
    axes[-1].set(xlabel="γ at inference")
    _finish(figure, axes, path)


def _draw_convergence(scale: Scale, runs: Cells, path: Path) -> None:
    """Validation accuracy after every epoch."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(6.4, 5.4), layout="constrained")
    for line, (run, seeds) in zip(_lines(scale, runs), runs.items(), strict=True):
        curves = [cell["figures"]["curve"] for cell in seeds.values()]
        epochs = [epoch for epoch, _ in curves[0]]
        rows = np.array([[top1 for _, top1 in curve] for curve in curves])
        _band(axis, epochs, rows, line, _label(scale, run))
    axis.set(ylabel="validation top-1, %", xlabel="epoch")
    axis.locator_params(axis="x", integer=True)
    _finish(figure, [axis], path)


def _first_seeds(runs: Cells, name: str) -> dict[str, dict[str, Any]]:
    """The figures of the first seed of every run that has the named one."""
    first = {run: next(iter(seeds.values()))["figures"] for run, seeds in runs.items()}
    return {run: figures for run, figures in first.items() if figures.get(name) is not None}


def _draw_attention(columns: dict[str, dict[str, Any]], path: Path) -> None:
    """Where the class token looks, one column per run, one row per picture."""
    plt = pyplot()
    pictures = len(next(iter(columns.values()))["attention"])
    size = (2.6 * len(columns), 2.7 * pictures)
    maps = zip(*(figures["attention"] for figures in columns.values()), strict=True)
    brightest = [max(np.max(attention) for attention in row) for row in maps]  # one scale per picture
    figure, axes = plt.subplots(pictures, len(columns), figsize=size, layout="constrained", squeeze=False)
    for column, (run, figures) in zip(axes.T, columns.items(), strict=True):
        column[0].set(title=run)
        for axis, attention, most in zip(column, figures["attention"], brightest, strict=True):
            axis.imshow(attention, cmap="viridis", vmin=0, vmax=most)
            axis.set(xticks=[], yticks=[])
    save_chart(figure, path)


def _draw_positions(columns: dict[str, dict[str, Any]], path: Path) -> None:
    """Position embeddings of the first seed in the plane, three runs side by side, turned towards the first of all."""
    plt = pyplot()
    planes = {"pca": "principal components", "umap": "UMAP"}
    bands = -(-len(columns) // ACROSS)
    size = (2.1 * ACROSS, 2.2 * bands * len(planes))
    figure, axes = plt.subplots(bands * len(planes), ACROSS, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for plane, (name, title) in enumerate(planes.items()):
        first: NDArray[np.float64] | None = None
        for k, (run, figures) in enumerate(columns.items()):
            axis = axes[len(planes) * (k // ACROSS) + plane, k % ACROSS]
            axis.set_axis_on()
            axis.set(xticks=[], yticks=[], title=run, xlabel=title)
            if figures.get(name) is None:
                axis.text(0.5, 0.5, "not computed:\npip install mjp[umap]", ha="center", transform=axis.transAxes)
                continue
            points = np.array(figures[name])
            first = points if first is None else first
            _scatter(axis, _turned(points, first))
    save_chart(figure, path)


def _turned(points: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, 2) points turned and mirrored towards others: a projection fixes neither."""
    centred = points - points.mean(0)
    if points.shape != target.shape:  # another grid
        return centred
    rotation, _ = orthogonal_procrustes(centred, target - target.mean(0))
    return np.asarray(centred @ rotation)


def _scatter(axis: Any, points: NDArray[np.float64]) -> None:
    """(N, 2) points of a square grid; red grows with the row, blue with the column."""
    side = round(len(points) ** 0.5)
    index = np.arange(len(points))
    colours = np.stack([index // side / side, np.full(len(points), 0.4), index % side / side], 1)
    axis.scatter(points[:, 0], points[:, 1], c=colours, s=14)


def _band(axis: Any, x: list[float], rows: NDArray[np.float64], line: dict[str, str], label: str) -> None:
    mean, spread = rows.mean(0), rows.std(0, ddof=1) if len(rows) > 1 else np.zeros(rows.shape[1])
    axis.plot(x, mean, marker=".", label=label, **line)
    axis.fill_between(x, mean - spread, mean + spread, color=line["color"], alpha=0.15, linewidth=0)


def _finish(figure: Any, axes: Any, path: Path) -> None:
    tidy(*axes)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=1, frameon=False)
    save_chart(figure, path)


def _label(scale: Scale, run: str) -> str:
    return f"{run}: {scale.runs[run].title}"


def _lines(scale: Scale, runs: Cells) -> list[dict[str, str]]:
    """A line for every run: a colour for each family and a style for each of its runs, or a colour for each run."""
    families = [scale.runs[run].family for run in runs]
    members = [families[:k].count(family) for k, family in enumerate(families)]
    names = list(dict.fromkeys(families))
    if len(names) > 1 and max(members) < len(STYLES):
        return [_line(names.index(family), style) for family, style in zip(families, members, strict=True)]
    return [_line(k, k // len(COLOURS)) for k in range(len(runs))]


def _line(colour: int, style: int) -> dict[str, str]:
    return {"color": COLOURS[colour % len(COLOURS)], "linestyle": STYLES[style % len(STYLES)]}


def _mean(cell: dict[str, Any], quantity: str) -> float:
    values = values_of(cell, quantity)
    return float("nan") if values is None else float(values.mean())
