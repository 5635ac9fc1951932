"""Runs that differ only in their seed: mean and standard deviation of their results.

How a model was trained is recorded in config.yaml of its run. Two models belong to one family if their configurations
agree in everything that a result depends on, except the seed; a teacher, or a run that was continued, counts by its own
family, since each seed has its own. A model without its run belongs to no family.
"""

import hashlib
import json
from collections import defaultdict
from itertools import takewhile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml

from mjp.common.runs.recipe import FREE_TO_CHANGE

IGNORED = {*FREE_TO_CHANGE, "cache", "seed", "eval_every"}  # settings that do not define a family
REPORTED = ("i2t", "t2i", "rsum", "retention_percent", "overlap10", "folds")


def training_of(folder: Path) -> dict[str, Any] | None:
    """Phase, objective, seed and family of a model's run; None if the run is not available."""
    config = _config(folder)
    if config is None:
        return None
    return {**{name: config.get(name) for name in ("phase", "objective", "seed")}, "family": _family(config)}


def over_seeds(models: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """For every family with several seeds: mean and standard deviation of what each scorer reaches."""
    families: dict[str, dict[int, str]] = defaultdict(dict)
    for name, entry in models.items():
        if (training := entry["training"]) is not None:
            families[training["family"]].setdefault(training["seed"], name)
    return [
        _summary([models[name] for name in members.values()], list(members.values()))
        for members in families.values()
        if len(members) > 1
    ]


def _summary(entries: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    spread = _spread([entry.get("scorers", {}) for entry in entries])
    scorers = {scorer: {key: values[key] for key in REPORTED if key in values} for scorer, values in spread.items()}
    labels = [entry["labels"] for entry in entries if "labels" in entry]
    first = entries[0]["training"]
    return {
        "name": _pattern(names),
        "models": names,
        "seeds": [entry["training"]["seed"] for entry in entries],
        "phase": first["phase"],
        "objective": first["objective"],
        "scorers": scorers,
        "ndcg25": _spread([entry.get("ndcg25", {}) for entry in entries]),
        **({"labels": _label_spread(labels)} if len(labels) == len(entries) else {}),
    }


def _label_spread(labels: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and deviation of what every scorer reaches by name and by kind; intervals of single models are left out."""
    return {
        way: {
            scorer: _spread([{m: v["mean"] for m, v in entry[way]["scorers"][scorer].items()} for entry in labels])
            for scorer in labels[0][way]["scorers"]
        }
        for way in ("name", "kind")
        if all(way in entry for entry in labels)
    }


def _spread(values: list[Any]) -> Any:
    """Mean and standard deviation of every number that all of these structures contain."""
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
    """config.yaml of a run, by the folder of the run or of its model."""
    file = (folder.parent if folder.name == "model" else folder) / "config.yaml"
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None
    return config if isinstance(config, dict) and "phase" in config else None


def _family(config: dict[str, Any]) -> str:
    settings = {name: value for name, value in config.items() if name not in IGNORED}
    if config["phase"] != "distill":
        settings.pop("teacher", None)  # not used
    for name in ("teacher", "guide", "init"):
        if settings.get(name) is not None:
            taught_by = _config(Path(settings[name]))
            settings[name] = settings[name] if taught_by is None else _family(taught_by)
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:12]
