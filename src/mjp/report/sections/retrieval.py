"""Pictures found with words: the scorers of `mjp aladin eval`, what hidden positions cost, and the time of a search."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import NOTHING, Cell, measured, plus_minus
from mjp.report.runs import Run, look

TITLE = "Finding pictures with words"
PARTS = {
    "encode": "encoding the query",
    "search": "search by vector",
    "rerank": "re-ranking",
    "exhaustive": "exhaustive alignment, tokens on disk",
    "exhaustive_in_memory": "exhaustive alignment, tokens in memory",
}


def find(runs: Sequence[Run]) -> Any:
    evaluated = look(runs, "aladin eval", _evaluated)
    timed = [found for kind in ("aladin bench", "aladin eval") for part in look(runs, kind, _timed) for found in part]
    return {"evaluated": evaluated, "timed": timed} if evaluated or timed else None


def _evaluated(run: Run) -> dict[str, Any]:
    settings, first = run.facts["settings"], next(iter(run.models.values()))
    judges = list(next(iter(first["ndcg25"].values())))  # rouge_l, and the files of human judgements
    families = [_family(family, judges) for family in run.facts["seeds"]]
    members = [name for family in run.facts["seeds"] for name in family["models"]]
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


def _model(name: str, model: dict[str, Any], judges: list[str]) -> dict[str, Any]:
    rows = []
    for scorer, found in model["scorers"].items():
        kept, same = found["retention_percent"], found.get("overlap10")
        rows.append(
            {
                "scorer": f"{scorer}, K\u00a0=\u00a0{found['k']}" if "k" in found else scorer,
                "cells": [
                    *_recalls(found),
                    measured(_bounds(found["rsum_interval"])),
                    measured(kept) if scorer != "alignment" and kept is not None else NOTHING,
                    measured(_bounds(found["difference"])) if scorer != "alignment" else NOTHING,
                    *(_judged(model["ndcg25"].get(scorer, {}).get(judge)) for judge in judges),
                    Cell(f"{same['i2t']:.0f} / {same['t2i']:.0f}") if same else NOTHING,
                ],
            }
        )
    for scorer, found in _folded(model):
        cells = [*_recalls(found), measured(found["rsum"]), *[NOTHING] * (3 + len(judges))]
        rows.append({"scorer": f"{scorer}, galleries of {found['size']:,}", "cells": cells})
    return {"name": name, "training": _training(model["training"]), "rows": rows}


def _family(family: dict[str, Any], judges: list[str]) -> dict[str, Any]:
    """The same columns for the mean of several seeds."""
    rows = []
    for scorer, found in family["scorers"].items():
        rsum, kept = (_deviation(found[key]) for key in ("rsum", "retention_percent"))
        same, judged = found.get("overlap10"), family["ndcg25"].get(scorer, {})
        rows.append(
            {
                "scorer": scorer,
                "cells": [
                    *_mean_recalls(found),
                    rsum,
                    kept if scorer != "alignment" else NOTHING,
                    NOTHING,
                    *(_judged(_means(judged.get(judge))) for judge in judges),
                    Cell(f"{same['i2t']['mean']:.0f} / {same['t2i']['mean']:.0f}") if same else NOTHING,
                ],
            }
        )
    for scorer, found in _folded(family):
        cells = [*_mean_recalls(found), _deviation(found["rsum"]), *[NOTHING] * (3 + len(judges))]
        rows.append({"scorer": f"{scorer}, galleries of {found['size']['mean']:,g}", "cells": cells})
    seeds = f"mean ± standard deviation of seeds {', '.join(map(str, family['seeds']))}"
    return {"name": family["name"], "training": f"{_training(family)}; {seeds}", "rows": rows}


def _folded(group: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """What every scorer reaches in galleries of fewer pictures, if that was measured."""
    return [(scorer, found["folds"]) for scorer, found in group["scorers"].items() if "folds" in found]


def _recalls(found: dict[str, Any]) -> list[Cell]:
    return [Cell(" / ".join(f"{value:.1f}" for value in found[way])) for way in ("i2t", "t2i")]


def _mean_recalls(found: dict[str, Any]) -> list[Cell]:
    return _recalls({way: [value["mean"] for value in found[way]] for way in ("i2t", "t2i")})


def _deviation(found: dict[str, float] | None) -> Cell:
    return NOTHING if found is None else plus_minus(found["mean"], found["sd"], 1)


def _training(facts: dict[str, Any] | None) -> str:
    if facts is None:
        return ""
    return facts["phase"] if facts["phase"] == "align" else f"{facts['phase']}, {facts['objective']}"


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
    found = run.models if run.kind == "aladin bench" else run.facts.get("latency", {})
    return [_timing(run, name, facts) for name, facts in found.items()]


def _timing(run: Run, name: str, facts: dict[str, Any]) -> dict[str, Any]:
    sizes = facts["sizes"]
    return {
        **{"name": name, "headline": facts["headline"], "threads": facts["threads"]},
        **{"rerank": facts["rerank"], "patches": facts["patches"], "queries": len(facts["queries"])},
        "sizes": [f"{each['pictures']:,}" for each in sizes],
        "rows": [(label, [_time(each["milliseconds"].get(part)) for each in sizes]) for part, label in PARTS.items()],
        "bytes": [Cell(f"{each['index_bytes'] / 1e6:,.1f}") for each in sizes],
        "each": [Cell(f"{each['bytes_per_picture'] / 1e3:,.1f}") for each in sizes],
        "figure": run.picture("latency.png"),
    }


def _time(found: dict[str, float] | None) -> Cell:
    return NOTHING if found is None else Cell(f"{found['p50']:,.2f}", f"p95 {found['p95']:,.2f}")


def _bounds(found: dict[str, float]) -> list[float]:
    return [found["mean"], found["low"], found["high"]]


def _means(found: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if found is None else {way: found[way] and found[way]["mean"] for way in ("i2t", "t2i")}


def _judged(found: dict[str, Any] | None) -> Cell:
    """Both directions; a dash where nobody judged."""
    if found is None:
        return NOTHING
    return Cell(" / ".join("–" if found[way] is None else f"{found[way]:.1f}" for way in ("i2t", "t2i")))
