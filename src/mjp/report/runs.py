"""Folders that mjp commands wrote: results.json, or metrics.jsonl of a training run, and the pictures beside them."""

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mjp.common.charts import dark_version
from mjp.common.errors import InputError
from mjp.common.read import read_jsonl, read_yaml
from mjp.common.results import RESULTS, Results, read_results
from mjp.pictures.decode import read_png

USUAL = Path("out")
METRICS = "metrics.jsonl"
ADVICE = (
    "name folders that mjp eval, study, train, segment, reproduce, attack, audit, federate, or aladin eval and bench "
    "wrote"
)
Part = TypeVar("Part")


class Picture(NamedTuple):
    """A PNG file as the page holds it, and its version for dark pages if there is one."""

    uri: str
    width: int
    height: int
    dark: str | None = None


@dataclass(frozen=True)
class Run:
    """A folder and what a command left in it."""

    folder: Path
    results: Results

    @property
    def kind(self) -> str:
        return self.results.kind

    @property
    def settings(self) -> dict[str, Any]:
        return self.results.settings

    @property
    def body(self) -> dict[str, Any]:
        return self.results.body

    @property
    def models(self) -> dict[str, Any]:
        return self.results.body["models"]

    def picture(self, name: str) -> Picture:
        path = self.folder / name
        try:
            content, width, height = read_png(path)
            dark = png_uri(read_png(dark_version(path))[0]) if dark_version(path).is_file() else None
        except FileNotFoundError as error:
            raise InputError(f"there is no picture {path}: run mjp {self.kind} again") from error
        except (InputError, OSError) as error:
            raise InputError(f"{path} is not a complete PNG picture: run mjp {self.kind} again") from error
        return Picture(png_uri(content), width, height, dark)


def png_uri(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def collect(folders: Sequence[Path] = (), *, kinds: Iterable[str], usual: Path = USUAL) -> list[Run]:
    """The runs in the named folders; by default those of these kinds directly under `usual`."""
    if folders:
        runs = [_read(folder) for folder in dict.fromkeys(folders)]
        for run in runs:
            _check(run, tuple(kinds))
        return runs
    candidates = sorted({path.parent for name in (RESULTS, METRICS) for path in usual.glob(f"*/{name}")})
    runs = [run for run in map(_read, candidates) if run.kind in set(kinds)]
    for run in runs:
        _check(run, tuple(kinds))
    if not runs:
        raise InputError(f"there are no results in {usual}/: run `mjp eval MODEL...` first, or {ADVICE}")
    return runs


def from_runs(runs: Iterable[Run], kind: str, extract: Callable[[Run], Part]) -> list[Part]:
    """What `extract` takes out of each run of a kind. A file that lacks something is named."""
    parts = []
    for run in runs:
        if run.kind == kind:
            try:
                parts.append(extract(run))
            except InputError:
                raise
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                reason = f"{type(error).__name__}: {str(error)[:100]}"
                raise InputError(
                    f"{run.folder / RESULTS} is not as this mjp {kind} writes it ({reason}): run it again"
                ) from error
    return parts


def _read(folder: Path) -> Run:
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: {ADVICE}")
    if (folder / RESULTS).exists() or not (folder / METRICS).exists():
        return Run(folder, read_results(folder))
    return Run(folder, _training_run(folder))


def _training_run(folder: Path) -> Results:
    """A run of mjp train, also an unfinished one: its settings and what it logged after every epoch."""
    config = folder / "config.yaml"
    settings = read_yaml(config) if config.is_file() else {}
    entries = read_jsonl(folder / METRICS)
    epochs = [entry for entry in entries if entry.get("kind") == "epoch" and entry.get("val_top1") is not None]
    return Results("train", settings, {"models": {str(folder): {"epochs": epochs}}})


def _check(run: Run, kinds: tuple[str, ...]) -> None:
    path = run.folder / RESULTS
    if run.kind not in kinds:
        commands = " or mjp ".join(kinds)
        raise InputError(f"{path} does not say that mjp {commands} wrote it: leave it out, or run that command again")
    if not isinstance(run.body.get("models"), dict) or not run.body["models"]:
        raise InputError(f"{path} holds no models: run mjp {run.kind} again")
