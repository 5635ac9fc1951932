"""Which class every pixel belongs to: mIoU and mAcc of UPerNet on the backbones, from `mjp segment`."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import NOTHING, Cell, percent
from mjp.report.runs import Run, from_runs

TITLE = "Segmentation"
KINDS: tuple[str, ...] = ("segment",)


def gather(runs: Sequence[Run]) -> Any:
    measured = from_runs(runs, "segment", _measured)
    if not measured:
        return None
    names = list(dict.fromkeys(name for run in measured for name, _ in run["classes"]))
    columns = [dict(run["classes"]) for run in measured]
    classes = [(name, [column.get(name, NOTHING) for column in columns]) for name in names]
    return {"runs": measured, "classes": [(name, cells) for name, cells in classes if set(cells) != {NOTHING}]}


def headline(model: dict[str, Any]) -> list[Cell]:
    """mIoU and mAcc."""
    return [percent(model["miou"]), percent(model["macc"])]


def _measured(run: Run) -> dict[str, Any]:
    ((name, model),) = run.models.items()
    classes = [
        (label, NOTHING if row["iou"] is None else percent(row["iou"])) for label, row in model["classes"].items()
    ]
    return {
        "name": name,
        "backbone": model["backbone"]["architecture"],
        "weights": model["backbone"]["weights"],
        "cells": [*headline(model), percent(model["accuracy"])],
        "data": run.body["data"],
        "split": run.body["split"],
        "pictures": f"{model['pictures']:,}",
        "steps": f"{model['steps']:,}",
        "seed": model["seed"],
        "classes": classes,
        "figure": run.picture("predictions.png"),
    }
