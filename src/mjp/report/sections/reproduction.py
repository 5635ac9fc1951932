"""The paper in miniature: the verdicts and tables of `mjp reproduce`."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import NOTHING, Cell, measured, plus_minus
from mjp.report.runs import Run, from_runs

TITLE = "The paper in miniature"
KINDS: tuple[str, ...] = ("reproduce",)
COLUMNS = (
    ("top1", "top-1, %", 100),
    ("consistency", "consistency at γ = .5, %", 100),
    ("top1_shuffled", "top-1 at γ = .5, %", 100),
    ("diff_relative", "feature shift", 1),
)
SHARES = ("top1", "consistency", "corruption", "step_cost", "top1_halfway", "miou", "macc")  # shown in points
FIGURES = {
    "inference.png": "Accuracy and consistency over γ in inference, one line for each run; bands are one standard "
    "deviation over seeds.",
    "convergence.png": "Validation accuracy after every epoch, one line for each run, with bands of one deviation.",
}


def gather(runs: Sequence[Run]) -> Any:
    scales = from_runs(runs, "reproduce", _scale)
    return {"scales": scales, "columns": [title for _, title, _ in COLUMNS]} if scales else None


def _scale(run: Run) -> dict[str, Any]:
    body = run.body
    return {
        "title": body["scale"]["title"],
        "about": body["scale"]["about"],
        "claims": [_claim(claim) for claim in body["claims"]],
        "tables": [_table(table) for table in body["tables"].values()],
        "figures": [(run.picture(name), text) for name, text in FIGURES.items() if (run.folder / name).is_file()],
        "cells": body["cells"],
        "hours": f"{body['seconds'] / 3600:.1f}",
    }


def _claim(claim: dict[str, Any]) -> dict[str, Any]:
    difference = claim["difference"]
    scale = 100 if claim["quantity"].partition("@")[0] in SHARES else 1
    if difference is None:
        cell = NOTHING
    elif difference["low"] is None:  # one seed
        cell = measured(difference["mean"], scale=scale, digits=2)
    else:
        cell = measured([difference["mean"], difference["low"], difference["high"]], scale=scale, digits=2)
    return {"text": claim["text"], "published": claim["published"], "cell": cell, "verdict": claim["verdict"]}


def _table(table: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for row in table["rows"]:
        cells = [_figure(row["figures"].get(name), scale) for name, _, scale in COLUMNS]
        rows.append({"name": f"{row['run']}: {row['title']}", "seeds": row["seeds"], "cells": cells})
    return {"title": table["title"], "rows": rows}


def _figure(figure: dict[str, Any] | None, scale: float) -> Cell:
    if figure is None:
        return NOTHING
    mean = scale * figure["mean"]
    return Cell(f"{mean:.2f}") if figure["std"] is None else plus_minus(mean, scale * figure["std"])
