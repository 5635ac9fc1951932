"""The curves of a sweep as a picture."""

from pathlib import Path
from typing import Any

from mjp.common.charts import COLOURS, pyplot, save_chart, tidy
from mjp.evaluation.sweep import Sweep

# metric, title, scale
PANELS = (
    ("top1", "top-1 accuracy, %", 100),
    ("consistency", "consistency, %", 100),
    ("diff_relative", "feature shift", 1),
)


def draw_sweeps(sweeps: dict[str, Sweep], path: Path) -> None:
    """Accuracy, consistency and relative feature shift over the mask ratio, one colour per model, bands of 95 %."""
    figure, axes = pyplot().subplots(1, len(PANELS), figsize=(4.6 * len(PANELS), 4.2), layout="constrained")
    for axis, (metric, title, scale) in zip(axes, PANELS, strict=True):
        for colour, (model, sweep) in zip(COLOURS * len(sweeps), sweeps.items(), strict=False):
            for unknown, style in ((True, "-"), (False, "--")):
                _draw_curve(axis, model, sweep, metric, unknown=unknown, scale=scale, style=style, colour=colour)
        axis.set(title=title, xlabel="mask ratio γ")
    tidy(*axes)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    save_chart(figure, path)


def _draw_curve(
    axis: Any, model: str, sweep: Sweep, metric: str, *, unknown: bool, scale: float, style: str, colour: str
) -> None:
    points = [point for point in sweep.points if point.unknown == unknown]
    if not points:
        return
    ratios, values = [point.ratio for point in points], [point.metrics[metric] for point in points]
    label = f"{model}, {'E_unk' if unknown else 'positions kept'}"
    axis.plot(ratios, [scale * value.mean for value in values], style, color=colour, marker=".", label=label)
    low, high = [scale * value.low for value in values], [scale * value.high for value in values]
    axis.fill_between(ratios, low, high, color=colour, alpha=0.12, linewidth=0)
