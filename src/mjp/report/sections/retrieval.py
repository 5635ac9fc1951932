"""Finding pictures with words: the scorers of `mjp aladin eval`, what hidden positions cost, the time of a search."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import NOTHING, Cell, measured, plus_minus
from mjp.report.runs import Run, from_runs

TITLE = "Finding pictures with words"
KINDS: tuple[str, ...] = ("aladin eval", "aladin bench")
WAYS = {"name": "the name of a class, “a photo of a CLASS”", "kind": "an everyday word for several classes, “a dog”"}
PARTS = {
    "encode": "encoding the query",
    "search": "search by vector",
    "rerank": "re-ranking",
    "exhaustive": "exhaustive alignment, tokens on disk",
    "exhaustive_in_memory": "exhaustive alignment, tokens in memory",
}


def gather(runs: Sequence[Run]) -> Any:
    evaluated = [figures for figures in from_runs(runs, "aladin eval", _evaluated) if figures is not None]
    labelled = [figures for part in from_runs(runs, "aladin eval", _labelled) for figures in part]
    timed = [
        figures
        for kind in ("aladin bench", "aladin eval")
        for part in from_runs(runs, kind, _timed)
        for figures in part
    ]
    content = {"evaluated": evaluated, "labelled": labelled, "timed": timed}
    return content if any(content.values()) else None


def _evaluated(run: Run) -> dict[str, Any] | None:
    """Recall of captions; None if only labels were measured."""
    settings, first = run.settings, next(iter(run.models.values()))
    if "scorers" not in first:
        return None
    judges = list(next(iter(first["ndcg25"].values())))  # rouge_l, and the files of human judgements
    families = [_family(family, judges) for family in run.body["seeds"]]
    members = [name for family in run.body["seeds"] for name in family["models"]]
    models = {name: _model(name, model, judges) for name, model in run.models.items()}
    curves = {name: model["masking"] for name, model in run.models.items() if "masking" in model}
    return {
        "data": settings["data"],
        "split": settings["split"],
        "chosen": settings["choose_on"] if len(settings["rerank"]) > 1 else None,
        **{"seed": settings["seed"], "fold": settings.get("fold")},
        "pictures": f"{first['pictures']:,}",
        "captions": f"{first['captions']:,}",
        "judges": [judge.replace("rouge_l", "ROUGE-L") for judge in judges],
        "groups": [*families, *(group for name, group in models.items() if name not in members)],
        "members": [models[name] for name in members],
        "curves": [_curve(name, curve) for name, curve in curves.items()],
        "figure": run.picture("masking.png") if curves else None,
    }


def _labelled(run: Run) -> list[dict[str, Any]]:
    """One table per folder and way to ask: names of classes, everyday words."""
    models = {name: model["labels"] for name, model in run.models.items() if "labels" in model}
    families = {family["name"]: family for family in run.body["seeds"] if "labels" in family}
    tables = []
    for way, asked in WAYS.items():
        asking = {name: labels[way] for name, labels in models.items() if way in labels}
        for labels in list(models.values())[:1] if asking else ():
            first = next(iter(asking.values()))
            means = [_label_family(name, family, way) for name, family in families.items() if way in family["labels"]]
            tables.append(
                {
                    **{"folder": labels["folder"], "asked": asked, "queries": first["queries"]},
                    **{"pictures": f"{labels['pictures']:,}", "classes": labels["classes"]},
                    "chance": f"{100 * first['chance']:.1f}",
                    "possible": [f"{100 * first['possible'][key]:.0f}" for key in ("p5", "p10")],
                    "groups": [*means, *(_label_model(name, entry) for name, entry in asking.items())],
                }
            )
    return tables


def _label_model(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    rows = [
        (scorer, [measured([100 * bound for bound in _bounds(value)]) for value in values.values()])
        for scorer, values in entry["scorers"].items()
    ]
    return {"name": name, "rows": rows}


def _label_family(name: str, family: dict[str, Any], way: str) -> dict[str, Any]:
    seeds = f"mean ± standard deviation of seeds {', '.join(map(str, family['seeds']))}"
    rows = [
        (scorer, [plus_minus(100 * value["mean"], 100 * value["sd"], 1) for value in values.values()])
        for scorer, values in family["labels"][way].items()
    ]
    return {"name": f"{name}: {seeds}", "rows": rows}


def _model(name: str, model: dict[str, Any], judges: list[str]) -> dict[str, Any]:
    rows = []
    for scorer, figures in model["scorers"].items():
        retention, overlap = figures["retention_percent"], figures.get("overlap10")
        difference = None if scorer == "alignment" else figures["difference"]
        rows.append(
            {
                "scorer": f"{scorer}, K\u00a0=\u00a0{figures['k']}" if "k" in figures else scorer,
                "cells": [
                    *_recalls(figures),
                    measured(_bounds(figures["rsum_interval"])),
                    measured(retention) if scorer != "alignment" and retention is not None else NOTHING,
                    measured(_bounds(figures["difference"])) if difference else NOTHING,
                    *(_judged(model["ndcg25"].get(scorer, {}).get(judge)) for judge in judges),
                    Cell(f"{overlap['i2t']:.0f} / {overlap['t2i']:.0f}") if overlap else NOTHING,
                ],
            }
        )
    for scorer, figures in _folded(model):
        cells = [*_recalls(figures), measured(figures["rsum"]), *[NOTHING] * (3 + len(judges))]
        rows.append({"scorer": f"{scorer}, galleries of {figures['size']:,}", "cells": cells})
    return {"name": name, "training": _training(model["training"], model.get("backbone_trained", False)), "rows": rows}


def _family(family: dict[str, Any], judges: list[str]) -> dict[str, Any]:
    """The same columns for the mean of several seeds."""
    rows = []
    for scorer, figures in family["scorers"].items():
        rsum, retention = (_deviation(figures[key]) for key in ("rsum", "retention_percent"))
        overlap, judged = figures.get("overlap10"), family["ndcg25"].get(scorer, {})
        rows.append(
            {
                "scorer": scorer,
                "cells": [
                    *_mean_recalls(figures),
                    rsum,
                    retention if scorer != "alignment" else NOTHING,
                    NOTHING,
                    *(_judged(_means(judged.get(judge))) for judge in judges),
                    Cell(f"{overlap['i2t']['mean']:.0f} / {overlap['t2i']['mean']:.0f}") if overlap else NOTHING,
                ],
            }
        )
    for scorer, figures in _folded(family):
        cells = [*_mean_recalls(figures), _deviation(figures["rsum"]), *[NOTHING] * (3 + len(judges))]
        rows.append({"scorer": f"{scorer}, galleries of {figures['size']['mean']:,g}", "cells": cells})
    seeds = f"mean ± standard deviation of seeds {', '.join(map(str, family['seeds']))}"
    return {"name": family["name"], "training": f"{_training(family)}; {seeds}", "rows": rows}


def _folded(group: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """What every scorer reaches in galleries of fewer pictures, if that was measured."""
    return [(scorer, figures["folds"]) for scorer, figures in group["scorers"].items() if "folds" in figures]


def _recalls(figures: dict[str, Any]) -> list[Cell]:
    return [Cell(" / ".join(f"{value:.1f}" for value in figures[way])) for way in ("i2t", "t2i")]


def _mean_recalls(figures: dict[str, Any]) -> list[Cell]:
    return _recalls({way: [value["mean"] for value in figures[way]] for way in ("i2t", "t2i")})


def _deviation(figures: dict[str, float] | None) -> Cell:
    return NOTHING if figures is None else plus_minus(figures["mean"], figures["sd"], 1)


def _training(training: dict[str, Any] | None, backbone_trained: bool = False) -> str:
    """Phase, objective of the matching head, and whether the backbone was trained too."""
    parts: list[str] = []
    if training is not None:
        parts += [training["phase"], *([] if training["phase"] in ("align", "classes") else [training["objective"]])]
    return ", ".join([*parts, *(["backbone trained"] if backbone_trained else [])])


def _curve(name: str, curve: dict[str, Any]) -> dict[str, Any]:
    rows = [("0", "no jigsaw", curve["clean"])]
    rows += [(f"{p['ratio']:g}", "E_unk" if p["unknown"] else "positions kept", p) for p in curve["points"]]
    cells = [
        (ratio, kind, [measured(_bounds(p[s][key])) for s in ("alignment", "vector") for key in ("rsum", "difference")])
        for ratio, kind, p in rows
    ]
    return {**{key: curve[key] for key in ("draws", "seed", "headline")}, "name": name, "rows": cells}


def _timed(run: Run) -> list[dict[str, Any]]:
    """What `aladin bench` is for, and `aladin eval` does if it is asked."""
    figures = run.models if run.kind == "aladin bench" else run.body.get("latency", {})
    return [_timing(run, name, timing) for name, timing in figures.items()]


def _timing(run: Run, name: str, timing: dict[str, Any]) -> dict[str, Any]:
    sizes = timing["sizes"]
    return {
        **{"name": name, "headline": timing["headline"], "threads": timing["threads"]},
        **{"rerank": timing["rerank"], "patches": timing["patches"], "queries": len(timing["queries"])},
        "sizes": [f"{size['pictures']:,}" for size in sizes],
        "rows": [(label, [_time(size["milliseconds"].get(part)) for size in sizes]) for part, label in PARTS.items()],
        "bytes": [Cell(f"{size['index_bytes'] / 1e6:,.1f}") for size in sizes],
        "each": [Cell(f"{size['bytes_per_picture'] / 1e3:,.1f}") for size in sizes],
        "figure": run.picture("latency.png"),
    }


def _time(figures: dict[str, float] | None) -> Cell:
    return NOTHING if figures is None else Cell(f"{figures['p50']:,.2f}", f"p95 {figures['p95']:,.2f}")


def _bounds(figures: dict[str, float]) -> list[float]:
    return [figures["mean"], figures["low"], figures["high"]]


def _means(figures: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if figures is None else {way: figures[way] and figures[way]["mean"] for way in ("i2t", "t2i")}


def _judged(figures: dict[str, Any] | None) -> Cell:
    """Both directions; a dash where nobody judged."""
    if figures is None:
        return NOTHING
    return Cell(" / ".join("–" if figures[way] is None else f"{figures[way]:.1f}" for way in ("i2t", "t2i")))
