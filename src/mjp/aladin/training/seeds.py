"""Runs that differ in nothing but their seed, and what they reach together: mean and standard deviation.

How a model was trained stands in config.yaml of its run. Two models are of one family if these agree in all that a
result depends on, the seed apart; a student's teacher counts by its own family, since each seed has its own teacher. A
model without its run belongs to no family.
"""

import hashlib
import json
from collections import defaultdict
from itertools import takewhile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml

from mjp.aladin.training.config import FREE_TO_CHANGE

ASIDE = {*FREE_TO_CHANGE, "seed", "eval_every"}
SHOWN = ("i2t", "t2i", "rsum", "retention_percent", "overlap10", "folds")


def training_of(folder: Path) -> dict[str, Any] | None:
    """Phase, objective, seed and family of the run that a model is from; None if the run is not at hand."""
    config = _config(folder)
    if config is None:
        return None
    return {**{name: config.get(name) for name in ("phase", "objective", "seed")}, "family": _family(config)}


def over_seeds(models: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """For every family of which there are several seeds: mean and standard deviation of what each scorer reaches."""
    families: dict[str, dict[int, str]] = defaultdict(dict)
    for name, facts in models.items():
        if (training := facts["training"]) is not None:
            families[training["family"]].setdefault(training["seed"], name)
    return [
        _together([models[name] for name in members.values()], list(members.values()))
        for members in families.values()
        if len(members) > 1
    ]


def _together(found: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    spread = _spread([each["scorers"] for each in found])
    scorers = {scorer: {key: facts[key] for key in SHOWN if key in facts} for scorer, facts in spread.items()}
    first = found[0]["training"]
    return {
        **{"name": _pattern(names), "models": names, "seeds": [each["training"]["seed"] for each in found]},
        **{"phase": first["phase"], "objective": first["objective"], "scorers": scorers},
        "ndcg25": _spread([each["ndcg25"] for each in found]),
    }


def _spread(values: list[Any]) -> Any:
    """Mean and standard deviation of every number that all of these structures hold."""
    first = values[0]
    if isinstance(first, dict):
        shared = [key for key in first if all(key in value for value in values)]
        return {key: _spread([value[key] for value in values]) for key in shared}
    if isinstance(first, list | tuple):
        return [_spread(list(column)) for column in zip(*values, strict=True)]
    return None if None in values else {"mean": mean(values), "sd": stdev(values)}


def _pattern(names: list[str]) -> str:
    """What the names have in common, a star for the rest: out/distill-*."""
    start = _beginning(names)
    end = _beginning([name[len(start) :][::-1] for name in names])[::-1]
    return f"{start}*{end}"


def _beginning(names: list[str]) -> str:
    """The letters that all names begin with."""
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in same)


def _config(folder: Path) -> dict[str, Any] | None:
    """config.yaml of a run, given the run or its model."""
    file = (folder.parent if folder.name == "model" else folder) / "config.yaml"
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return found if isinstance(found, dict) and "phase" in found else None


def _family(config: dict[str, Any]) -> str:
    kept = {name: value for name, value in config.items() if name not in ASIDE}
    if config["phase"] != "distill":
        kept.pop("teacher", None)  # it has none
    for name in ("teacher", "guide"):
        if kept.get(name) is not None:
            own = _config(Path(kept[name]))
            kept[name] = kept[name] if own is None else _family(own)
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:12]
