"""How training went: the accuracy of several runs over the epochs in one figure, whole and zoomed."""

from collections.abc import Sequence
from typing import Any

from mjp.common.charts import COLOURS, png_pair, pyplot, tidy
from mjp.report.runs import Picture, Run, from_runs, png_uri

TITLE = "Training"
KINDS: tuple[str, ...] = ("train",)
ZOOM = 60.0  # %: the supplementary's Figure 1 is zoomed above this
TOP_PART = 0.3  # of the range of accuracies, where no run reaches ZOOM


def gather(runs: Sequence[Run]) -> Any:
    histories = from_runs(runs, "train", _history)
    logged = [history for history in histories if history["top1"]]
    if not histories:
        return None
    floor = _zoom_floor([value for history in logged for value in history["top1"]])
    figure = _draw(logged, floor) if logged else None
    return {"runs": histories, "figure": figure, "floor": f"{floor:g}"}


def _history(run: Run) -> dict[str, Any]:
    ((name, model),) = run.models.items()
    epochs = [int(entry["epoch"]) for entry in model["epochs"]]
    top1 = [float(entry["val_top1"]) for entry in model["epochs"]]
    settings = run.settings
    return {
        "name": name,
        "model": str(settings.get("model", "–")),
        "preset": str(settings.get("preset", "–")),
        "planned": settings.get("epochs"),
        "epochs": epochs,
        "top1": top1,
        "last": f"{top1[-1]:.2f}" if top1 else "–",
        "best": f"{max(top1):.2f}" if top1 else "–",
    }


def _zoom_floor(values: Sequence[float]) -> float:
    """Where the zoomed panel begins: 60 %, or lower where runs do not get far beyond it."""
    if not values or max(values) > ZOOM + 5:
        return ZOOM
    return max(values) - TOP_PART * (max(values) - min(values))


def _draw(histories: Sequence[dict[str, Any]], floor: float) -> Picture:
    figure, axes = pyplot().subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for colour, history in zip(COLOURS * len(histories), histories, strict=False):
        for axis in axes:
            marker = "." if len(history["epochs"]) < 50 else None
            axis.plot(history["epochs"], history["top1"], color=colour, marker=marker, label=history["name"])
    best = max(max(history["top1"]) for history in histories)
    axes[0].set(title="top-1 accuracy, %", xlabel="epoch")
    axes[1].set(title=f"the same above {floor:g} %", xlabel="epoch", ylim=(floor, best + 0.04 * (best - floor) + 0.1))
    tidy(*axes)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=1, frameon=False)
    light, dark, width, height = png_pair(figure)
    return Picture(png_uri(light), width, height, png_uri(dark))
