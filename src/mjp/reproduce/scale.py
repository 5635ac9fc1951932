"""A scale: one YAML file that says which runs there are, what is measured on them, and which claim each serves.

    title, about            what the scale is
    data, checkpoint        what --data and --checkpoint must name
    train                   fields of `mjp train` that all runs share
    runs                    NAME: fields of `mjp train` for this run; `like:` a run whose fields it starts from;
                            `measure:` what is measured beside the sweep
    ratios, pictures        the γ at which every run is judged, and on how many validation pictures
    sweep, sweep_pictures   further γ for the figure, on fewer pictures
    attacked                pictures whose gradients are attacked, for runs that measure leakage
    segment                 fields of `mjp segment`, for runs that measure it
    curves                  the runs that figures show, if not all
    seeds                   the seeds of every run; default 0, 1, 2
    tables                  NAME: its runs and columns, and the figures of the paper that stand beside
    claims                  what the paper says, as a comparison of two runs
    doubts                  what a sceptic asks, and the claims that answer it

`cells` turns it into the list of (run, seed) that have to be computed.
"""

from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from mjp.common.errors import InputError
from mjp.common.read import parse_yaml, read_yaml
from mjp.reproduce.quantities import DEFAULT, style

SEEDS = (0, 1, 2)
MEASUREMENTS = ("positions", "corruption", "attention", "cost", "leakage", "segment", "uniform")


@dataclass(frozen=True)
class Run:
    """One row of the grid: a training run, without its seed."""

    name: str
    title: str
    train: dict[str, Any]
    measure: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper as a comparison: `quantity` of run `of` minus that of run `than`."""

    id: str
    table: str
    text: str
    quantity: str
    of: str
    than: str
    published: str
    sign: int = 1
    margin: float = 0.0
    baseline: str | None = "A"  # the plain network that must use its positions; None: the claim is not about positions


@dataclass(frozen=True)
class Doubt:
    """A question of a sceptic, and the ids of the claims that answer it."""

    question: str
    claims: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    title: str
    runs: tuple[str, ...]
    columns: tuple[str, ...] = DEFAULT
    published: dict[str, dict[str, float]] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Scale:
    name: str
    title: str
    about: str
    runs: dict[str, Run]
    tables: dict[str, Table]
    claims: tuple[Claim, ...]
    doubts: tuple[Doubt, ...]
    curves: tuple[str, ...]
    ratios: tuple[float, ...]
    pictures: int | None
    sweep: tuple[float, ...]
    sweep_pictures: int | None
    attacked: int
    segment: dict[str, Any]
    seeds: tuple[int, ...]
    minutes: float  # of one run on one core of the machine that the figures come from
    needs_checkpoint: bool

    def cells(self, seeds: tuple[int, ...], only: tuple[str, ...] = ()) -> list["Cell"]:
        """Every (run, seed) that the chosen tables need. Seeds vary slowest: an early stop leaves whole seeds."""
        if unknown := sorted(set(only) - set(self.tables)):
            raise InputError(f"there is no table {', '.join(unknown)}: choose from {', '.join(self.tables)}")
        wanted = {name for table in only or self.tables for name in self.tables[table].runs}
        return [Cell(run, seed) for seed in seeds for run in self.runs.values() if run.name in wanted]


@dataclass(frozen=True)
class Cell:
    run: Run
    seed: int

    @property
    def name(self) -> str:
        return f"{self.run.name}-{self.seed}"


def scales() -> list[str]:
    """The scales that come with the package."""
    names = [path.name for path in files("mjp.reproduce.scales").iterdir()]
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def load_scale(name: str) -> Scale:
    """A scale by name, or from a YAML file."""
    if name in scales():
        values = parse_yaml(files("mjp.reproduce.scales").joinpath(f"{name}.yaml").read_text(), name)
    elif Path(name).suffix in (".yaml", ".yml") and Path(name).is_file():
        values = read_yaml(Path(name))
    else:
        raise InputError(f"there is no scale {name!r}: choose from {', '.join(scales())}, or give a YAML file")
    try:
        return _scale(Path(name).stem, values)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"the scale {name} is incomplete or has a field of the wrong kind: {error}") from error


def _scale(name: str, values: dict[str, Any]) -> Scale:
    common = values.get("train", {})
    runs = {}
    for key, fields in values["runs"].items():
        settings = {**values["runs"].get(fields.get("like"), {}), **fields}
        settings.pop("like", None)
        measure = tuple(settings.pop("measure", ()))
        if unknown := set(measure) - set(MEASUREMENTS):
            raise ValueError(f"run {key} measures {', '.join(sorted(unknown))}")
        runs[key] = Run(key, settings.pop("title", key), {**common, **settings}, measure)
    tables = {key: _table(entry) for key, entry in values["tables"].items()}
    claims = tuple(Claim(**entry) for entry in values["claims"])
    doubts = tuple(Doubt(entry["question"], tuple(entry["claims"])) for entry in values.get("doubts", ()))
    if missing := sorted({id for doubt in doubts for id in doubt.claims} - {claim.id for claim in claims}):
        raise ValueError(f"there is no claim {', '.join(missing)}")
    curves = tuple(values.get("curves", runs))
    named = {*curves, *(name for table in tables.values() for name in table.runs)}
    if missing := sorted((named | {run for claim in claims for run in (claim.of, claim.than)}) - set(runs)):
        raise ValueError(f"there is no run {', '.join(missing)}")
    return Scale(
        name=name,
        title=values["title"],
        about=values["about"],
        runs=runs,
        tables=tables,
        claims=claims,
        doubts=doubts,
        curves=curves,
        ratios=tuple(values["ratios"]),
        pictures=values.get("pictures"),
        sweep=tuple(values.get("sweep", ())),
        sweep_pictures=values.get("sweep_pictures"),
        attacked=values.get("attacked", 8),
        segment=values.get("segment", {}),
        seeds=tuple(values.get("seeds", SEEDS)),
        minutes=values["minutes"],
        needs_checkpoint=values.get("checkpoint", False),
    )


def _table(entry: dict[str, Any]) -> Table:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    table = Table(**fields)
    for quantity in table.columns:
        style(quantity)  # refuses a quantity that nobody knows
    return table
