"""The models and their headline numbers, one row for each model and data set."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import NOTHING, Cell, closest, data_name, percent, plus_minus, point, ratios, swept
from mjp.report.runs import Run, from_runs

TITLE = "Summary"
KINDS: tuple[str, ...] = ("eval", "study")


def gather(runs: Sequence[Run]) -> Any:
    studied = {name: cell for part in from_runs(runs, "study", _positions) for name, cell in part.items()}
    rows = [row for part in from_runs(runs, "eval", _headlines) for row in part]
    if not rows and not studied:
        return None
    evaluated = {row["model"] for row in rows}
    rows += [{"model": name, "data": "–"} for name in studied if name not in evaluated]
    for row in rows:
        row["place"] = studied.get(row["model"], NOTHING)
    shared = {row["ratio"] for row in rows if "ratio" in row}
    return {
        "rows": rows,
        "models": list(dict.fromkeys(row["model"] for row in rows)),
        "ratio": shared.pop() if len(shared) == 1 else None,  # otherwise every row names its own
        "evaluated": bool(evaluated),
        "unknown": any(row.get("unknown", NOTHING) != NOTHING for row in rows),
        "studied": bool(studied),
    }


def _headlines(run: Run) -> list[dict[str, Any]]:
    return [_headline(name, model, run.body["data"]) for name, model in swept(run).items()]


def _headline(name: str, model: dict[str, Any], data: str) -> dict[str, Any]:
    row = {"model": name, "data": data_name(data), "pictures": f"{model['pictures']:,}", "top1": percent(model["top1"])}
    if not model["points"]:  # accuracy alone was measured
        return {**row, "keeping": NOTHING, "unknown": NOTHING}
    ratio = closest(ratios(model))

    def consistency(unknown: bool) -> Cell:
        at_ratio = point(model, ratio, unknown)
        return percent(at_ratio["consistency"]) if at_ratio else NOTHING

    return {**row, "ratio": ratio, "keeping": consistency(False), "unknown": consistency(True)}


def _positions(run: Run) -> dict[str, Cell]:
    return {name: plus_minus(model["place_mae"], model["place_std"]) for name, model in run.models.items()}
