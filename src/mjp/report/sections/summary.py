"""The models and their headline numbers, one row for each model and data set."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import NOTHING, Cell, closest, data_name, percent, plus_minus, point, ratios
from mjp.report.runs import Run, look

TITLE = "Summary"


def find(runs: Sequence[Run]) -> Any:
    studied = {name: cell for part in look(runs, "study", _positions) for name, cell in part.items()}
    rows = [row for part in look(runs, "eval", _headlines) for row in part]
    seen = {row["model"] for row in rows}
    rows += [{"model": name, "data": "–"} for name in studied if name not in seen]
    for row in rows:
        row["place"] = studied.get(row["model"], NOTHING)
    shared = {row["ratio"] for row in rows if "ratio" in row}
    return {
        "rows": rows,
        "models": list(dict.fromkeys(row["model"] for row in rows)),
        "ratio": shared.pop() if len(shared) == 1 else None,  # otherwise every row names its own
        "evaluated": bool(seen),
        "unknown": any(row.get("unknown", NOTHING) != NOTHING for row in rows),
        "studied": bool(studied),
    }


def _headlines(run: Run) -> list[dict[str, Any]]:
    return [_headline(name, model, run.facts["data"]) for name, model in run.models.items()]


def _headline(name: str, model: dict[str, Any], data: str) -> dict[str, Any]:
    ratio = closest(ratios(model))

    def consistency(unknown: bool) -> Cell:
        found = point(model, ratio, unknown)
        return percent(found["consistency"]) if found else NOTHING

    return {
        "model": name,
        "data": data_name(data),
        "pictures": f"{model['pictures']:,}",
        "top1": percent(model["top1"]),
        "ratio": ratio,
        "kept": consistency(False),
        "unknown": consistency(True),
    }


def _positions(run: Run) -> dict[str, Cell]:
    return {name: plus_minus(model["place_mae"], model["place_std"]) for name, model in run.models.items()}
