"""Errors on corrupted, adversarially chosen and foreign pictures: what `mjp eval` figures if it was asked to look."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import NOTHING, Cell, data_name, percent
from mjp.report.runs import Run, from_runs

TITLE = "Robustness"
KINDS: tuple[str, ...] = ("eval",)

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


def gather(runs: Sequence[Run]) -> Any:
    return [part for part in from_runs(runs, "eval", _robustness) if part] or None


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
    kinds = dict.fromkeys(kind for figures in corrupted.values() for kind in figures["errors"])
    plain = {name: _cell(figures.get("mce_unnormalised")) for name, figures in corrupted.items()}
    return {
        "data": data_name(run.body["data"]),
        "seed": run.settings["seed"],
        "rows": [(name, plain.get(name, NOTHING), headline(model)) for name, model in measured.items()],
        "sources": _sources(measured),
        "models": list(corrupted),
        "errors": [(kind, [mean_error(figures, kind) for figures in corrupted.values()]) for kind in kinds],
        "figures": [(run.picture(name), alt) for name, alt in FIGURES.items() if (run.folder / name).is_file()],
    }


def _sources(measured: dict[str, Any]) -> list[str]:
    """Where the pictures of each set came from, and what of it was not there."""
    lines = []
    for model in measured.values():
        for part, figures in model["robustness"].items():
            missing = f" (missing: {', '.join(map(str, figures['missing']))})" if figures.get("missing") else ""
            lines.append(f"{SETS.get(part, part)}: {figures['source']}{missing}")
    return list(dict.fromkeys(lines))


def mean_error(figures: dict[str, Any], kind: str) -> Cell:
    """The error under a corruption over the severities, with its interval if there is one."""
    if kind in figures.get("means", {}):
        return percent(figures["means"][kind])
    errors = figures["errors"].get(kind, [None])
    return NOTHING if None in errors else percent(sum(errors) / len(errors))


def _cell(figure: Any) -> Cell:
    return NOTHING if figure is None else percent(figure)
