"""Read a scale from its YAML file.

title, about            what the scale is
checkpoint              true: --checkpoint must name pretrained weights
train                   fields of `mjp train` that all runs share
runs                    NAME: fields of `mjp train` for this run; `like:` a run whose fields it starts from;
                        `measure:` what is measured beside the sweep; `family:` runs that vary alike from seed to
                        seed, whose variance is estimated together
seeds                   the seeds of every run; default 0, 1, 2
minutes, gpu            how long a run takes, on a core or on a GPU of this kind
ratios, pictures        the γ at which every run is judged, and on how many validation pictures
sweep, sweep_pictures   further γ for the figure, on fewer pictures
attacked                pictures whose gradients are attacked, for runs that measure leakage
segment                 fields of `mjp segment`, for runs that measure it
curves                  the runs that figures show, if not all
tables                  NAME: its runs and columns, and the figures of the paper that stand beside
claims                  what the paper says, as a comparison of two runs
doubts                  what a sceptic asks, and the claims that answer it
"""

import re
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from mjp.common.errors import InputError, shorten
from mjp.common.read import parse_yaml, read_yaml
from mjp.common.validate import fraction, number, seed, whole
from mjp.reproduce.quantities import check_quantity
from mjp.reproduce.scale import Claim, Doubt, Run, Scale, Table

FIELDS = {
    *("title", "about", "checkpoint", "train", "runs", "seeds", "minutes", "gpu", "ratios", "pictures", "sweep"),
    *("sweep_pictures", "attacked", "segment", "curves", "tables", "claims", "doubts"),
}
SEEDS = (0, 1, 2)
RUN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")  # it becomes part of file names
MEASUREMENTS = ("positions", "corruption", "attention", "cost", "leakage", "segment", "uniform")


def scales() -> list[str]:
    """The scales that come with the package."""
    names = [path.name for path in files("mjp.reproduce.scales").iterdir()]
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def load_scale(name: str) -> Scale:
    """A scale by name, or from a YAML file."""
    if name in scales():
        values = parse_yaml(files("mjp.reproduce.scales").joinpath(f"{name}.yaml").read_text(encoding="utf-8"), name)
    elif Path(name).suffix in (".yaml", ".yml") and Path(name).is_file():
        values = read_yaml(Path(name))
    else:
        raise InputError(f"there is no scale {name!r}: choose from {', '.join(scales())}, or give a YAML file")
    try:
        return _scale(Path(name).stem, values)
    except KeyError as error:
        raise InputError(f"the scale {name} lacks the field {error}: add it") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise InputError(f"the scale {name} cannot be read: {error}") from error


def _scale(name: str, values: dict[str, Any]) -> Scale:
    _names("field", values, FIELDS)
    runs = {key: _run(key, values) for key in values["runs"]}
    ratios = tuple(fraction("a γ of ratios", ratio) for ratio in values["ratios"])
    sweep = tuple(fraction("a γ of sweep", ratio) for ratio in values.get("sweep", ()))
    if not ratios:
        raise ValueError("ratios must hold one γ or more, at which runs are judged")
    check = partial(check_quantity, ratios=ratios, sweep=sweep)
    tables = {key: _table(key, entry, runs, check) for key, entry in values["tables"].items()}
    claims = tuple(_claim(entry, runs, tables, check) for entry in values["claims"])
    if gated := [claim.id for claim in claims if claim.baseline is not None and 1.0 not in ratios]:
        raise ValueError(f"the gate of the claim {gated[0]} needs γ = 1 among ratios: add it, or set baseline: null")
    ids = Counter(claim.id for claim in claims)
    if repeated := [id for id, count in ids.items() if count > 1]:
        raise ValueError(f"two claims have the id {repeated[0]}")
    curves = tuple(values.get("curves", runs))
    _names("run", curves, runs)
    return Scale(
        name=name,
        title=_text("title", values["title"]),
        about=_text("about", values["about"]),
        runs=runs,
        tables=tables,
        claims=claims,
        doubts=tuple(_doubt(entry, ids) for entry in values.get("doubts", ())),
        curves=curves,
        ratios=ratios,
        pictures=_count("pictures", values),
        sweep=sweep,
        sweep_pictures=_count("sweep_pictures", values),
        attacked=whole("attacked", values.get("attacked", 8), least=1),
        segment=dict(values.get("segment", {})),
        seeds=_seeds(values.get("seeds", SEEDS)),
        minutes=number("minutes", values["minutes"], least=0),
        gpu=None if values.get("gpu") is None else _text("gpu", values["gpu"]),
        needs_checkpoint=bool(values.get("checkpoint", False)),
    )


def _run(name: str, values: dict[str, Any]) -> Run:
    """The fields of a run: those of all runs, of the run that it is like, and its own."""
    if not RUN_NAME.fullmatch(name):
        raise ValueError(
            f"{shorten(name)} cannot name a run: use letters, digits and . _ -, and no . or - at the start"
        )
    fields = dict(values["runs"][name])
    if "like" in fields:
        _names("run", [fields["like"]], values["runs"])
        model = values["runs"][fields.pop("like")]
        if "like" in model:
            raise ValueError(f"the run {name} is like a run that is itself like another: name that one")
        fields = {**model, **fields}
    measure = tuple(fields.pop("measure", ()))
    _names("measurement", measure, MEASUREMENTS)
    about = {"title": fields.pop("title", name), "family": fields.pop("family", "main")}
    for key, value in about.items():
        _text(f"the {key} of the run {name}", value)
    train = {**values.get("train", {}), **fields}
    _check_train(name, train)
    return Run(name, train=train, measure=measure, **about)


def _check_train(run: str, train: dict[str, Any]) -> None:
    """Refuse what would end every cell of a run; `mjp train` checks the rest."""
    if "recipe" not in train:
        raise ValueError(f"the run {run} has no recipe: name one in the run, or in train for all runs")
    _text(f"the recipe of the run {run}", train["recipe"])
    if not isinstance(train.get("mjp", {}), dict):
        raise ValueError(f"mjp of the run {run} must hold fields and values, not {shorten(train['mjp'])}")


def _table(name: str, entry: dict[str, Any], runs: Collection[str], check: Callable[[Any], None]) -> Table:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    table = Table(**fields)
    _text(f"the title of the table {name}", table.title)
    _text(f"the note of the table {name}", table.note)
    _names("run", [*table.runs, *table.published], runs)
    for quantity in [*table.columns, *(quantity for row in table.published.values() for quantity in row)]:
        check(quantity)
    for run, row in table.published.items():
        for quantity, figure in row.items():
            number(f"the published {quantity} of {run}", figure)
    return table


def _claim(
    entry: dict[str, Any], runs: Collection[str], tables: Collection[str], check: Callable[[Any], None]
) -> Claim:
    claim = Claim(**entry)
    for name in ("id", "table", "text", "quantity", "of", "than", "published"):
        _text(f"{name} of the claim {shorten(claim.id)}", getattr(claim, name))
    _names("run", [claim.of, claim.than, *([claim.baseline] if claim.baseline else [])], runs)
    _names("table", [claim.table], tables)
    check(claim.quantity)
    number(f"the margin of {claim.id}", claim.margin, least=0)
    if claim.size is not None:
        number(f"the size of {claim.id}", claim.size)
    for name in ("post_hoc", "ours"):
        if not isinstance(value := getattr(claim, name), bool):
            raise ValueError(f"{name} of {claim.id} must be true or false, not {shorten(value)}")
    return claim


def _doubt(entry: dict[str, Any], ids: Collection[str]) -> Doubt:
    _names("claim", entry["claims"], ids)
    return Doubt(_text("the question of a doubt", entry["question"]), tuple(entry["claims"]))


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, not {shorten(value)}")
    return value


def _seeds(values: Any) -> tuple[int, ...]:
    seeds = tuple(seed("a seed", value) for value in values)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must hold one seed or more, each once, not {shorten(values)}")
    return seeds


def _count(name: str, values: dict[str, Any]) -> int | None:
    value = values.get(name)
    return None if value is None else whole(name, value, least=1)


def _names(kind: str, names: Collection[str], choices: Collection[str]) -> None:
    """Refuse names that are not among the choices."""
    if unknown := sorted(shorten(name) for name in set(names) - set(choices)):
        raise ValueError(f"there is no {kind} {', '.join(unknown)}")
