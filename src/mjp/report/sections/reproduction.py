"""The paper in miniature: the findings, verdicts, doubts and tables of `mjp reproduce`."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import NOTHING, Cell, measured, plus_minus
from mjp.report.claims import fill_in, interval, judged, remark
from mjp.report.published import CORRUPTIONS, TABLE_4
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
    claims = judged(body["claims"])
    return {
        "title": body["scale"]["title"],
        "about": body["scale"]["about"],
        "findings": [sentence for text in body.get("findings", ()) if (sentence := fill_in(_unquoted(text), claims))],
        "claims": [_claim(claim) for claim in body["claims"]],
        "starred": any(claim.get("post_hoc") for claim in body["claims"]),
        "doubts": [asked for doubt in body.get("doubts", ()) if (asked := _doubt(doubt, claims))],
        "tables": [_table(table) for table in body["tables"].values() if any(row["seeds"] for row in table["rows"])],
        "corruptions": _corruptions(body),
        "gates": [_gate(name, gate) for name, gate in body["gates"].items() if gate["loss"] is not None],
        "figures": [(run.picture(name), text) for name, text in FIGURES.items() if (run.folder / name).is_file()],
        "cells": body["cells"],
        "hours": f"{body['seconds'] / 3600:.1f}",
        "device": "GPU" if body["scale"].get("gpu") else "core",
    }


def _claim(claim: dict[str, Any]) -> dict[str, Any]:
    return {
        "text": _unquoted(claim["text"]) + ("\N{NO-BREAK SPACE}*" if claim.get("post_hoc") else ""),
        "published": claim["published"],
        "runs": _runs(claim),
        "cell": _difference(claim),
        "verdict": claim["verdict"] + remark(claim),
    }


def _runs(claim: dict[str, Any]) -> str:
    """The two runs behind a difference; a narrow column may break after the minus sign."""
    return f"{claim['of']}\N{NO-BREAK SPACE}− {claim['than']}" if claim.get("of") and claim.get("than") else "–"


def _difference(claim: dict[str, Any]) -> Cell:
    """+3.57 and [+1.62, +5.52] points."""
    if claim["difference"] is None:
        return NOTHING
    mean, _, rest = interval(claim).partition(" ")
    return Cell(mean, rest) if rest.startswith("[") else Cell(f"{mean} {rest}".strip())


def _doubt(doubt: dict[str, Any], claims: dict[str, Any]) -> dict[str, Any] | None:
    """What a sceptic asks, the answer, and the claims behind it; None if none of them has been tested."""
    behind = [claims[name] for name in doubt.get("claims", ()) if name in claims]
    if not behind:
        return None
    return {
        "question": _unquoted(doubt["question"]),
        "answer": fill_in(_unquoted(doubt.get("answer") or ""), claims) or "",
        "claims": [f"{_claim(claim)['text']}: {interval(claim)}, {_claim(claim)['verdict']}" for claim in behind],
    }


def _corruptions(body: dict[str, Any]) -> dict[str, Any] | None:
    """The error of every run under every corruption, then the paper's."""
    runs = body.get("corruptions")
    if not runs:
        return None
    published = {model: dict(zip(TABLE_4, row, strict=False)) for model, row in CORRUPTIONS.rows.items()}
    rows = []
    for name in dict.fromkeys(name for errors in runs.values() for name in errors):
        here = [measured(errors[name], scale=100) if name in errors else NOTHING for errors in runs.values()]
        there = [Cell(errors[name]) if name in errors else NOTHING for errors in published.values()]
        rows.append((name.replace("_", " "), here + there))
    titles = [": ".join(filter(None, (run, body["models"].get(run, {}).get("title")))) for run in runs]
    return {"columns": titles + [f"published: {model}" for model in published], "rows": rows}


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
