"""Published figures beside ours, in the same columns, with what is known to be odd about them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from mjp.report import published
from mjp.report.cells import (
    NOTHING,
    Cell,
    closest,
    data_name,
    measured,
    percent,
    pictures_of,
    plus_minus,
    point,
    ratios,
    swept,
)
from mjp.report.runs import Run, from_runs
from mjp.report.sections import robustness, segmentation

TITLE = "Published figures beside ours"
KINDS: tuple[str, ...] = ("eval", "study", "segment")


class Ours(NamedTuple):
    """Rows of ours under one heading that says what they were measured on."""

    setting: str
    rows: list[tuple[str, str, list[Cell]]]  # model, how it was asked, figures


def gather(runs: Sequence[Run]) -> Any:
    sides = [
        (published.JIGSAW, [ours for ours in from_runs(runs, "eval", _jigsaw) if ours.rows]),
        (published.ROBUSTNESS, [ours for ours in from_runs(runs, "eval", _robustness) if ours.rows]),
        (published.CORRUPTIONS, [ours for ours in from_runs(runs, "eval", _corruptions) if ours.rows]),
        (published.SEGMENTATION, from_runs(runs, "segment", _segmentation)),
        (published.POSITIONS, from_runs(runs, "study", _positions)),
    ]
    tables = [{"published": table, "ours": ours} for table, ours in sides if ours]
    more = [published.VARIANTS, published.TRAINING_RATIOS] if any(run.kind == "eval" for run in runs) else []
    return {"setting": published.SETTING, "tables": tables, "more": more} if tables or more else None


def _jigsaw(run: Run) -> Ours:
    rows = []
    models = {name: model for name, model in swept(run).items() if model["points"]}
    for name, model in models.items():
        ratio = closest(ratios(model))
        for unknown, positions in ((False, "positions kept"), (True, "E_unk")):
            if at_ratio := point(model, ratio, unknown):
                shift = measured(at_ratio["diff_norm"], digits=2)
                cells = [percent(model["top1"]), percent(at_ratio["consistency"]), shift]
                rows.append((name, f"{positions}, γ = {ratio:g}", cells))
    if not models:
        return Ours("", [])
    count = next(iter(models.values()))["pictures"]
    return Ours(f"ours: {pictures_of(run.body['data'], count)}", rows)


def _robustness(run: Run) -> Ours:
    rows = []
    for name, model in run.models.items():
        if figures := model.get("robustness"):
            source = f"corruptions: {figures['corruptions']['source']}" if "corruptions" in figures else ""
            rows.append((name, source, robustness.headline(model)))
    return Ours(f"ours: {data_name(run.body['data'])}", rows)


def _corruptions(run: Run) -> Ours:
    """Our error for each corruption of supplementary Table 4, and the mean over those ten if all were measured."""
    rows = []
    for name, model in run.models.items():
        if errors := model.get("robustness", {}).get("corruptions"):
            cells = [robustness.mean_error(errors, corruption) for corruption in published.TABLE_4]
            mean = NOTHING if NOTHING in cells else Cell(f"{sum(float(cell.value) for cell in cells) / len(cells):.1f}")
            rows.append((name, f"corruptions: {errors['source']}", [*cells, mean]))
    return Ours(f"ours: {data_name(run.body['data'])}", rows)


def _segmentation(run: Run) -> Ours:
    rows = [
        (name, model["backbone"]["architecture"], segmentation.headline(model)) for name, model in run.models.items()
    ]
    return Ours(f"ours: {run.body['split']} pictures of {run.body['data']}", rows)


def _positions(run: Run) -> Ours:
    rows = []
    for name, model in run.models.items():
        figures = [plus_minus(model[f"{key}_mae"], model[f"{key}_std"], 3) for key in ("index", "place")]
        rows.append((name, f"{' × '.join(map(str, model['grid']))} patches", figures))
    return Ours("ours", rows)
