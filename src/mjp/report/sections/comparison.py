"""Published figures beside ours, in the same columns, with what is known to be odd about them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from mjp.report import published
from mjp.report.cells import Cell, closest, data_name, measured, percent, pictures_of, plus_minus, point, ratios
from mjp.report.runs import Run, look
from mjp.report.sections import robustness

TITLE = "Published figures beside ours"


class Ours(NamedTuple):
    """Rows of ours under one heading that says what they were measured on."""

    setting: str
    rows: list[tuple[str, str, list[Cell]]]  # model, how it was asked, figures


def find(runs: Sequence[Run]) -> Any:
    sides = [
        (published.JIGSAW, look(runs, "eval", _jigsaw)),
        (published.ROBUSTNESS, [ours for ours in look(runs, "eval", _robustness) if ours.rows]),
        (published.POSITIONS, look(runs, "study", _positions)),
    ]
    tables = [{"published": table, "ours": ours} for table, ours in sides if ours]
    more = [published.VARIANTS, published.TRAINING_RATIOS] if any(run.kind == "eval" for run in runs) else []
    return {"setting": published.SETTING, "tables": tables, "more": more}


def _jigsaw(run: Run) -> Ours:
    rows = []
    for name, model in run.models.items():
        ratio = closest(ratios(model))
        for unknown, positions in ((False, "positions kept"), (True, "E_unk")):
            if found := point(model, ratio, unknown):
                figures = [
                    percent(model["top1"]),
                    percent(found["consistency"]),
                    measured(found["diff_norm"], digits=2),
                ]
                rows.append((name, f"{positions}, γ = {ratio:g}", figures))
    count = next(iter(run.models.values()))["pictures"]
    return Ours(f"ours: {pictures_of(run.facts['data'], count)}", rows)


def _robustness(run: Run) -> Ours:
    rows = []
    for name, model in run.models.items():
        if found := model.get("robustness"):
            source = f"corruptions: {found['corruptions']['source']}" if "corruptions" in found else ""
            rows.append((name, source, robustness.headline(model)))
    return Ours(f"ours: {data_name(run.facts['data'])}", rows)


def _positions(run: Run) -> Ours:
    rows = []
    for name, model in run.models.items():
        figures = [plus_minus(model[f"{key}_mae"], model[f"{key}_std"], 3) for key in ("index", "place")]
        rows.append((name, f"{' × '.join(map(str, model['grid']))} patches", figures))
    return Ours("ours", rows)
