"""The paper in miniature: the verdicts and tables of `mjp reproduce`."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import NOTHING, Cell, measured, plus_minus
from mjp.report.runs import Run, from_runs

TITLE = "The paper in miniature"
KINDS: tuple[str, ...] = ("reproduce",)
FIGURES = {
    "inference.png": "Accuracy and consistency over γ at inference, one line for each run; bands are one standard "
    "deviation over seeds.",
    "convergence.png": "Validation accuracy after every epoch, one line for each run, with bands of one deviation.",
    "positions.png": "Position embeddings in the plane, coloured by row and column.",
    "attention.png": "Attention of the class token in the last block, mean over heads, for two pictures.",
}


def gather(runs: Sequence[Run]) -> Any:
    scales = from_runs(runs, "reproduce", _scale)
    return {"scales": scales} if scales else None


def _scale(run: Run) -> dict[str, Any]:
    body = run.body
    return {
        "title": body["scale"]["title"],
        "about": body["scale"]["about"],
        "claims": [_claim(claim) for claim in body["claims"]],
        "tables": [_table(table) for table in body["tables"].values() if any(row["seeds"] for row in table["rows"])],
        "gates": [_gate(name, gate) for name, gate in body["gates"].items() if gate["loss"] is not None],
        "figures": [(run.picture(name), text) for name, text in FIGURES.items() if (run.folder / name).is_file()],
        "cells": body["cells"],
        "hours": f"{body['seconds'] / 3600:.1f}",
        "device": "GPU" if body["scale"].get("gpu") else "core",
    }


def _claim(claim: dict[str, Any]) -> dict[str, Any]:
    difference = claim["difference"]
    scale, digits = claim["factor"], claim.get("digits", 2)
    if difference is None:
        cell = NOTHING
    elif difference["low"] is None:  # one seed
        cell = measured(difference["mean"], scale=scale, digits=digits)
    else:
        cell = measured([difference["mean"], difference["low"], difference["high"]], scale=scale, digits=digits)
    return {
        "text": _unquoted(claim["text"]),
        "published": claim["published"],
        "cell": cell,
        "verdict": claim["verdict"],
    }


def _unquoted(text: str) -> str:
    """Without the marks that Markdown has around code."""
    return text.replace("`", "")


def _gate(name: str, gate: dict[str, Any]) -> dict[str, Any]:
    answer = Cell("yes" if gate["open"] else "no")
    return {"name": name, "cells": [measured(gate["loss"], scale=100), answer]}


def _table(table: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for row in (row for row in table["rows"] if row["seeds"]):
        cells = []
        for column in table["columns"]:
            cells += [_figure(row["figures"].get(column["quantity"]), column)]
            if column["quantity"] in _published(table):
                cells += [_paper(row["published"].get(column["quantity"]))]
        rows.append({"name": f"{row['run']}: {row['title']}", "seeds": row["seeds"], "cells": cells})
    titles = []
    for column in table["columns"]:
        titles += [column["title"], "published"] if column["quantity"] in _published(table) else [column["title"]]
    return {"title": table["title"], "note": _unquoted(table["note"]), "columns": titles, "rows": rows}


def _published(table: dict[str, Any]) -> set[str]:
    """The quantities of which the paper has figures."""
    return {quantity for row in table["rows"] for quantity in row["published"]}


def _paper(figure: float | None) -> Cell:
    return NOTHING if figure is None else Cell(f"{figure:g}")


def _figure(figure: dict[str, Any] | None, column: dict[str, Any]) -> Cell:
    if figure is None:
        return NOTHING
    factor, digits = column["factor"], column["digits"]
    if figure["std"] is None:
        return measured(figure["mean"], scale=factor, digits=digits)
    return plus_minus(factor * figure["mean"], factor * figure["std"], digits)
