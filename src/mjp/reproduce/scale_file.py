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
doubts                  what a sceptic asks, the claims that answer it, and the answer in a sentence
findings                what came out, in sentences; {ID} stands for the difference of a claim, here and in answers
"""

import re
from collections import Counter
from collections.abc import Collection
from importlib.resources import files
from pathlib import Path
from typing import Any

from mjp.common.errors import InputError, shorten
from mjp.common.read import parse_yaml, read_yaml
from mjp.common.validate import fraction, number, seed, whole
from mjp.reproduce.quantities import style
from mjp.reproduce.scale import Claim, Doubt, Run, Scale, Table

FIELDS = {
    *("title", "about", "checkpoint", "train", "runs", "seeds", "minutes", "gpu", "ratios", "pictures", "sweep"),
    *("sweep_pictures", "attacked", "segment", "curves", "tables", "claims", "doubts", "findings"),
}
SEEDS = (0, 1, 2)
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
    tables = {key: _table(entry, runs) for key, entry in values["tables"].items()}
    claims = tuple(_claim(entry, runs, tables) for entry in values["claims"])
    ids = Counter(claim.id for claim in claims)
    if repeated := [id for id, count in ids.items() if count > 1]:
        raise ValueError(f"two claims have the id {repeated[0]}")
    curves = tuple(values.get("curves", runs))
    _names("run", curves, runs)
    return Scale(
        name=name,
        title=values["title"],
        about=values["about"],
        runs=runs,
        tables=tables,
        claims=claims,
        doubts=tuple(_doubt(entry, ids) for entry in values.get("doubts", ())),
        findings=tuple(_sentence(text, ids) for text in values.get("findings", ())),
        curves=curves,
        ratios=tuple(fraction("a γ of ratios", ratio) for ratio in values["ratios"]),
        pictures=_count("pictures", values),
        sweep=tuple(fraction("a γ of sweep", ratio) for ratio in values.get("sweep", ())),
        sweep_pictures=_count("sweep_pictures", values),
        attacked=whole("attacked", values.get("attacked", 8), least=1),
        segment=dict(values.get("segment", {})),
        seeds=tuple(seed("a seed", value) for value in values.get("seeds", SEEDS)),
        minutes=number("minutes", values["minutes"], least=0),
        gpu=values.get("gpu"),
        needs_checkpoint=bool(values.get("checkpoint", False)),
    )


def _run(name: str, values: dict[str, Any]) -> Run:
    """The fields of a run: those of all runs, of the run that it is like, and its own."""
    fields = dict(values["runs"][name])
    if "like" in fields:
        _names("run", [fields["like"]], values["runs"])
        fields = {**values["runs"][fields.pop("like")], **fields}
    measure = tuple(fields.pop("measure", ()))
    _names("measurement", measure, MEASUREMENTS)
    about = {"title": fields.pop("title", name), "family": fields.pop("family", "main")}
    return Run(name, train={**values.get("train", {}), **fields}, measure=measure, **about)


def _table(entry: dict[str, Any], runs: Collection[str]) -> Table:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    table = Table(**fields)
    _names("run", [*table.runs, *table.published], runs)
    for quantity in [*table.columns, *(name for row in table.published.values() for name in row)]:
        style(quantity)  # refuses a quantity that does not exist
    return table


def _claim(entry: dict[str, Any], runs: Collection[str], tables: Collection[str]) -> Claim:
    claim = Claim(**entry)
    _names("run", [claim.of, claim.than, *([claim.baseline] if claim.baseline else [])], runs)
    _names("table", [claim.table], tables)
    style(claim.quantity)
    number(f"the margin of {claim.id}", claim.margin, least=0)
    if claim.size is not None:
        number(f"the size of {claim.id}", claim.size)
    return claim


def _doubt(entry: dict[str, Any], ids: Collection[str]) -> Doubt:
    _names("claim", entry["claims"], ids)
    return Doubt(entry["question"], tuple(entry["claims"]), _sentence(entry.get("answer", ""), ids))


def _sentence(text: str, ids: Collection[str]) -> str:
    _names("claim", re.findall(r"\{(.*?)\}", text), ids)
    return text


def _count(name: str, values: dict[str, Any]) -> int | None:
    value = values.get(name)
    return None if value is None else whole(name, value, least=1)


def _names(kind: str, names: Collection[str], choices: Collection[str]) -> None:
    """Refuse names that are not among the choices."""
    if unknown := sorted(shorten(name) for name in set(names) - set(choices)):
        raise ValueError(f"there is no {kind} {', '.join(unknown)}")
