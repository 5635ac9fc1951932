"""A scale: which runs there are, what is measured on them, and which claim each serves. `scale_file` reads one."""

from dataclasses import dataclass, field
from typing import Any

from mjp.common.errors import InputError
from mjp.reproduce.quantities import DEFAULT


@dataclass(frozen=True)
class Run:
    """One row of the grid: a training run, without its seed."""

    name: str
    title: str
    train: dict[str, Any]
    measure: tuple[str, ...] = ()
    family: str = "main"  # runs of one family are taken to vary alike from seed to seed


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
    size: float | None = None  # the published difference, in the unit in which ours is printed
    margin: float = 0.0
    baseline: str | None = "A"  # the plain network that must use its positions; None: the claim is not about positions
    post_hoc: bool = False  # added when figures of its runs had been seen
    ours: bool = False  # asked by us; the paper does not claim it


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
    minutes: float  # of one run on one core of the machine that the figures come from, or on one GPU
    gpu: str | None  # the kind of GPU that the minutes are about; None: they are about a core
    needs_checkpoint: bool

    def measured(self, run: Run) -> dict[str, Any]:
        """What is measured on a run, and how."""
        names = ("ratios", "pictures", "sweep", "sweep_pictures", "attacked", "segment")
        return {"measure": run.measure, **{name: getattr(self, name) for name in names}}

    def cells(self, seeds: tuple[int, ...], only: tuple[str, ...] = ()) -> list["Cell"]:
        """Every (run, seed) that the chosen tables and their claims need.

        Seeds vary slowest: an early stop leaves whole seeds.
        """
        if unknown := sorted(set(only) - set(self.tables)):
            raise InputError(f"there is no table {', '.join(unknown)}: choose from {', '.join(self.tables)}")
        tables = only or tuple(self.tables)
        wanted = {name for table in tables for name in self.tables[table].runs}
        wanted |= {run for c in self.claims if c.table in tables for run in (c.of, c.than, c.baseline) if run}
        return [Cell(run, seed) for seed in seeds for run in self.runs.values() if run.name in wanted]


@dataclass(frozen=True)
class Cell:
    run: Run
    seed: int

    @property
    def name(self) -> str:
        return f"{self.run.name}-{self.seed}"
