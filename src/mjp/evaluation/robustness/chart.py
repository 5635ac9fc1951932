"""Errors by corruption as a picture, and a picture under every corruption."""

from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from mjp.common.charts import COLOURS, pyplot, save_chart, tidy
from mjp.evaluation.robustness.sets import Generated
from mjp.models import Subject
from mjp.pictures.sheet import contact_sheet
from mjp.pictures.tensors import to_tensor

SMALLEST_TILE = 96  # pixels: smaller pictures are enlarged by a whole factor, so that one sees something


def draw_corruptions(models: dict[str, dict[str, Any]], path: Path) -> None:
    """Mean error of each corruption, one colour per model, bars of 95 %; `models` as in results.json."""
    names = list(dict.fromkeys(name for errors in models.values() for name in errors["means"]))
    figure, axis = pyplot().subplots(figsize=(8, 1.6 + 0.34 * len(names)), layout="constrained")
    for k, (colour, (model, errors)) in enumerate(zip(COLOURS * len(models), models.items(), strict=False)):
        means = [(row, errors["means"][name]) for row, name in enumerate(names) if name in errors["means"]]
        heights = [row + 0.5 * ((k + 0.5) / len(models) - 0.5) for row, _ in means]  # side by side, none hidden
        centres = [100 * mean for _, (mean, _, _) in means]
        below = [100 * (mean - low) for _, (mean, low, _) in means]
        above = [100 * (high - mean) for _, (mean, _, high) in means]
        label = f"{model}: {100 * errors['mce_unnormalised'][0]:.1f} on average" if means else model
        axis.errorbar(centres, heights, xerr=[below, above], fmt="o", markersize=4, color=colour, label=label)
    axis.set(title="error by corruption, mean over severities, %", yticks=range(len(names)), yticklabels=names)
    axis.invert_yaxis()
    tidy(axis)
    figure.legend(loc="outside lower center", frameon=False)
    save_chart(figure, path)


def corruption_sheet(grid: Generated, subject: Subject) -> Image.Image | None:
    """The first picture that can be read, clean and in every cell of the grid; None if no picture can be read."""
    rows: dict[str, list[Tensor]] = {}
    for number in range(len(grid.clean)):
        try:
            clean = grid.clean.load(number)
        except (OSError, ValueError, SyntaxError):
            continue
        for cell in grid.cells():
            pictures = grid.pictures(subject, cell)
            rows.setdefault(cell[0], [_enlarged(pictures.cut(clean))]).append(_enlarged(pictures.load(number)))
        severities = [f"severity {severity}" for severity in grid.severities]
        return contact_sheet(rows, ["clean", *severities], title=f"{grid.clean.name(number)}, corrupted")
    return None


def _enlarged(picture: Image.Image) -> Tensor:
    pixels = to_tensor(picture).unsqueeze(0)
    return interpolate(pixels, scale_factor=max(1, SMALLEST_TILE // pixels.shape[-1]))[0]
