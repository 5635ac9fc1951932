"""The curves of a sweep, and errors by corruption, as pictures."""

import os
from pathlib import Path
from typing import Any

from mjp.evaluation.sweep import Sweep
from mjp.files import write_atomically

COLOURS = ("#1f5fa8", "#c44e00", "#3b7d3b", "#8a3b8f", "#7a6a00", "#444444")
PANELS = (
    ("top1", "top-1 accuracy, %", 100),
    ("consistency", "consistency, %", 100),
    ("diff_relative", "feature shift", 1),
)


def draw_sweeps(sweeps: dict[str, Sweep], path: Path) -> None:
    """Accuracy, consistency and relative feature shift over the mask ratio, one colour per model, bands of 95 %."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(PANELS), figsize=(4.6 * len(PANELS), 4.2), layout="constrained")
    for axis, (name, label, scale) in zip(axes, PANELS, strict=True):
        for colour, (model, sweep) in zip(COLOURS * len(sweeps), sweeps.items(), strict=False):
            for unknown, style in ((True, "-"), (False, "--")):
                points = [p for p in sweep.points if p.unknown == unknown]
                if not points:
                    continue
                values = [getattr(p, name) for p in points]
                x = [p.ratio for p in points]
                kind = f"{model}, {'E_unk' if unknown else 'positions kept'}"
                axis.plot(x, [scale * v.mean for v in values], style, color=colour, marker=".", label=kind)
                low, high = [scale * v.low for v in values], [scale * v.high for v in values]
                axis.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
        axis.set(title=label, xlabel="mask ratio γ")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=120))
    plt.close(figure)


def draw_corruptions(models: dict[str, dict[str, Any]], path: Path) -> None:
    """Mean error of each corruption, one colour per model, bars of 95 %; `models` as in results.json."""
    plt = pyplot()
    names = list(dict.fromkeys(name for figures in models.values() for name in figures["means"]))
    figure, axis = plt.subplots(figsize=(8, 1.6 + 0.34 * len(names)), layout="constrained")
    for k, (colour, (model, figures)) in enumerate(zip(COLOURS * len(models), models.items(), strict=False)):
        found = [(y, figures["means"][name]) for y, name in enumerate(names) if name in figures["means"]]
        places = [y + 0.5 * ((k + 0.5) / len(models) - 0.5) for y, _ in found]  # side by side, not on top of each other
        means = [100 * v[0] for _, v in found]
        bars = [[100 * (v[0] - v[1]) for _, v in found], [100 * (v[2] - v[0]) for _, v in found]]
        label = f"{model}: {100 * figures['mce_unnormalised'][0]:.1f} on average" if found else model
        axis.errorbar(means, places, xerr=bars, fmt="o", markersize=4, color=colour, label=label)
    axis.set(title="error by corruption, mean over severities, %", yticks=range(len(names)), yticklabels=names)
    axis.invert_yaxis()
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", frameon=False)
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=120))
    plt.close(figure)


def pyplot() -> Any:
    """matplotlib.pyplot, which draws without a screen."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    return plt
