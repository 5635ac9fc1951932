"""Accuracy, consistency and feature shift over γ: the sweep of `mjp eval`."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import NOTHING, Cell, measured, percent, pictures_of, point, ratios, spread_over, swept
from mjp.report.runs import Run, from_runs

TITLE = "Accuracy and consistency under the jigsaw"
KINDS: tuple[str, ...] = ("eval",)

# key in results.json, name, what it means, how it is shown
QUANTITIES = (
    (
        "top1",
        "Top-1 accuracy, %",
        "Share of pictures whose most likely class is the right one. Higher is better.",
        percent,
    ),
    (
        "consistency",
        "Consistency, %",
        "Share of pictures that get the same class, right or wrong, with and without the jigsaw. Higher is steadier; a "
        "model that always gives one class has 100 %, so read it beside the accuracy.",
        percent,
    ),
    (
        "diff_relative",
        "Feature shift",
        "How far the features before the classifier move, ‖f(x) − f(x̃)‖ / ‖f(x)‖: the paper’s Diff.Norm made "
        "independent of the scale of the features. 0 is no change; lower is steadier.",
        lambda figure: measured(figure, digits=3),
    ),
)


def gather(runs: Sequence[Run]) -> Any:
    return [part for part in from_runs(runs, "eval", _sweep) if part] or None


def _sweep(run: Run) -> dict[str, Any] | None:
    models = {name: model for name, model in swept(run).items() if model["points"]}
    if not models:  # accuracy alone is in the summary
        return None
    first = next(iter(models.values()))
    columns = spread_over(ratios(first))
    tables = []
    for key, name, meaning, show in QUANTITIES:
        rows = [row for model in models.items() for row in _rows(*model, key, show, columns)]
        tables.append({"name": name, "meaning": meaning, "clean": key == "top1", "rows": rows})
    return {
        "data": pictures_of(run.body["data"], first["pictures"]),
        "draws": first["draws"],
        "seed": first["seed"],
        "ratios": columns,
        "tables": tables,
        "models": list(models),
        "figure": run.picture("sweep.png"),
    }


def _rows(name: str, model: dict[str, Any], key: str, show: Any, columns: list[float]) -> list[dict[str, Any]]:
    """One row with positions kept, and one with E_unk if the model has it."""
    rows = []
    for unknown, positions in ((False, "positions kept"), (True, "E_unk")):
        points = [point(model, ratio, unknown) for ratio in columns]
        if any(points):
            cells: list[Cell] = [show(p[key]) if p else NOTHING for p in points]
            clean = percent(model["top1"]) if key == "top1" else NOTHING
            rows.append({"model": name, "positions": positions, "clean": clean, "cells": cells})
    return rows
