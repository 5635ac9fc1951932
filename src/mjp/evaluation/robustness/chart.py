"""Errors by corruption as a picture."""

from pathlib import Path
from typing import Any

from mjp.common.charts import COLOURS, pyplot
from mjp.common.files import write_atomically


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
