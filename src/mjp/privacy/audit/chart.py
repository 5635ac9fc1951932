"""An audit as a picture: for each model the PSNR of the best attack on each defence, beside the data-free guess."""

from pathlib import Path
from typing import Any

from mjp.common.charts import COLOURS, QUIET, pyplot, save_chart, tidy

SETTINGS = {"a": ("o", 0.0), "b": ("s", -0.17), "c": ("^", 0.17)}  # marker, and its offset in the row of a defence
MEANING = {"a": "(a) picture", "b": "(b) shuffled picture", "c": "(c) picture behind the jigsaw"}
MAX_DECIBELS = 60.0  # differences beyond are invisible, and exact recoveries would squeeze the rest


def draw_audit(rows: list[dict[str, Any]], path: Path) -> None:
    plt = pyplot()
    models = list(dict.fromkeys(row["model"] for row in rows))
    defences = list(dict.fromkeys(row["defence"] for row in rows))
    size = (2.6 + 4.6 * len(models), 2.2 + 0.4 * len(defences))
    figure, axes = plt.subplots(1, len(models), figsize=size, squeeze=False, sharex=True, sharey=True)
    figure.set_layout_engine("constrained")
    for axis, model, colour in zip(axes[0], models, COLOURS * len(models), strict=False):
        for row in (row for row in rows if row["model"] == model):
            _draw_row(axis, row, defences.index(row["defence"]), colour)
        axis.set(title=_short(model), xlabel="PSNR of the best attack, dB")
        axis.set(yticks=range(len(defences)), yticklabels=defences, ylim=(len(defences) - 0.5, -0.5))
        tidy(axis)
    handles = _legend(plt, {row["setting"] for row in rows})
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    save_chart(figure, path)


def _draw_row(axis: Any, row: dict[str, Any], y: float, colour: str) -> None:
    """The guess as a bar, the best attack as a marker with its interval; beyond the scale, at its end with a number."""
    marker, shift = SETTINGS[row["setting"]]
    y = y + shift
    guess = row["attacks"]["guess"]["psnr"][0]
    axis.plot([guess, guess], [y - 0.16, y + 0.16], color=QUIET, linewidth=2)
    if row["best"] is None:
        return
    mean = row["attacks"][row["best"]]["psnr"][0]
    x, low, high = (min(value, MAX_DECIBELS) for value in row["attacks"][row["best"]]["psnr"])
    axis.errorbar(x, y, xerr=[[x - low], [high - x]], fmt=marker, color=colour, markersize=6)
    if mean > MAX_DECIBELS:
        place: dict[str, Any] = {"xytext": (7, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
        axis.annotate(f"→ {mean:.0f}", (x, y), color=colour, annotation_clip=False, **place)


def _legend(plt: Any, settings: set[str]) -> list[Any]:
    handles = []
    for key, (marker, _) in SETTINGS.items():
        if key in settings:
            handles.append(plt.Line2D([], [], color=QUIET, marker=marker, linestyle="", label=MEANING[key]))
    return [*handles, plt.Line2D([], [], color=QUIET, linewidth=2, label="data-free guess")]


def _short(model: str) -> str:
    """The end of a long name, which is what tells folders apart."""
    return model if len(model) <= 48 else "…" + model[-47:]
