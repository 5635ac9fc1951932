"""Errors on corrupted, adversarially chosen and foreign pictures: what `mjp eval` found if it was asked to look."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import NOTHING, Cell, data_name, percent
from mjp.report.runs import Run, look

TITLE = "Robustness"

SETS = {"corruptions": "corruptions", "imagenet_a": "ImageNet-A", "imagenet_o": "ImageNet-O"}
# what stands in results.json: set, figure
HEADLINES = (
    ("corruptions", "mce"),
    ("imagenet_a", "accuracy"),
    ("imagenet_a", "aurra"),
    ("imagenet_o", "aupr"),
)
FIGURES = {
    "robustness.png": "Error of each model over the severity of the corruptions; the numbers are in the table below.",
    "corruptions.png": "One picture under every corruption, to see what the models were shown.",
}


def find(runs: Sequence[Run]) -> Any:
    return [found for found in look(runs, "eval", _robustness) if found] or None


def headline(model: dict[str, Any]) -> list[Cell]:
    """mCE, ImageNet-A accuracy and AURRA, ImageNet-O AUPR; a dash for what was not measured."""
    return [_cell(model["robustness"].get(part, {}).get(key)) for part, key in HEADLINES]


def _robustness(run: Run) -> dict[str, Any] | None:
    measured = {name: model for name, model in run.models.items() if model.get("robustness")}
    if not measured:
        return None
    corrupted = {
        name: m["robustness"]["corruptions"] for name, m in measured.items() if m["robustness"].get("corruptions")
    }
    kinds = dict.fromkeys(kind for found in corrupted.values() for kind in found["errors"])
    plain = {name: _cell(found.get("mce_unnormalised")) for name, found in corrupted.items()}
    return {
        "data": data_name(run.facts["data"]),
        "seed": run.facts["settings"]["seed"],
        "rows": [(name, plain.get(name, NOTHING), headline(model)) for name, model in measured.items()],
        "sources": _sources(measured),
        "models": list(corrupted),
        "errors": [(kind, [_mean(found, kind) for found in corrupted.values()]) for kind in kinds],
        "figures": [(run.picture(name), alt) for name, alt in FIGURES.items() if (run.folder / name).is_file()],
    }


def _sources(measured: dict[str, Any]) -> list[str]:
    """Where the pictures of each set came from, and what of it was not there."""
    lines = []
    for model in measured.values():
        for part, found in model["robustness"].items():
            missing = f" (missing: {', '.join(map(str, found['missing']))})" if found.get("missing") else ""
            lines.append(f"{SETS.get(part, part)}: {found['source']}{missing}")
    return list(dict.fromkeys(lines))


def _mean(found: dict[str, Any], kind: str) -> Cell:
    """The error under a corruption over the severities, with its interval if there is one."""
    if kind in found.get("means", {}):
        return percent(found["means"][kind])
    errors = found["errors"].get(kind, [None])
    return NOTHING if None in errors else percent(sum(errors) / len(errors))


def _cell(figure: Any) -> Cell:
    return NOTHING if figure is None else percent(figure)
