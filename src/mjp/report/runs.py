"""Results folders: what a command says about itself in results.json, and how it is read back."""

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mjp import __version__
from mjp.common.errors import InputError
from mjp.common.read import read_json
from mjp.pictures.decode import read_png

# the commands whose results have a section
KINDS = ("eval", "study", "attack", "attack-update", "audit", "aladin eval", "aladin bench")
USUAL = Path("out")
Found = TypeVar("Found")


def describe(kind: str, options: Any) -> dict[str, Any]:
    """What results.json says about itself: the command that wrote it, its settings, and the versions it ran with."""
    settings = json.loads(json.dumps(asdict(options), default=str))  # paths as text, tuples as lists
    versions = {"mjp": __version__, "torch": version("torch"), "timm": version("timm")}
    return {"kind": kind, "settings": settings, "versions": versions}


class Picture(NamedTuple):
    """A PNG file as the page holds it."""

    uri: str
    width: int
    height: int


@dataclass(frozen=True)
class Run:
    """A results folder of a known kind."""

    folder: Path
    kind: str
    facts: dict[str, Any]

    @property
    def models(self) -> dict[str, Any]:
        return self.facts["models"]

    def picture(self, name: str) -> Picture:
        path = self.folder / name
        try:
            content, width, height = read_png(path)
        except FileNotFoundError as error:
            raise InputError(f"there is no picture {path}: run mjp {self.kind} again") from error
        except (InputError, OSError) as error:
            raise InputError(f"{path} is not a whole PNG picture: run mjp {self.kind} again") from error
        return Picture(f"data:image/png;base64,{base64.b64encode(content).decode()}", width, height)


def collect(folders: Sequence[Path] = (), *, usual: Path = USUAL) -> list[Run]:
    """The runs in the named folders; without any, those directly under `usual`, where other files are passed over."""
    if folders:
        return [_run(folder, _load(folder)) for folder in dict.fromkeys(folders)]
    found = {path.parent: _load(path.parent) for path in sorted(usual.glob("*/results.json"))}
    runs = [_run(folder, facts) for folder, facts in found.items() if _kind(facts) in KINDS]
    if not runs:
        raise InputError(
            f"there are no results in {usual}/: run `mjp eval MODEL...` and `mjp study MODEL...` first, or name the "
            "folders that they wrote"
        )
    return runs


def look(runs: Iterable[Run], kind: str, find: Callable[[Run], Found]) -> list[Found]:
    """What `find` finds in each run of a kind. A file that lacks something is named."""
    found = []
    for run in runs:
        if run.kind == kind:
            try:
                found.append(find(run))
            except InputError:
                raise
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise InputError(
                    f"{run.folder / 'results.json'} is not as this mjp {kind} writes it ({reason}): run it again"
                ) from error
    return found


def _load(folder: Path) -> Any:
    path = folder / "results.json"
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: name folders that mjp eval or mjp study wrote")
    try:
        return read_json(path, advice="run the command that wrote it again", nan_as_null=True)  # older files hold NaN
    except FileNotFoundError as error:
        raise InputError(f"there is no results.json in {folder}: name folders that mjp eval or study wrote") from error


def _kind(facts: Any) -> Any:
    return facts.get("kind") if isinstance(facts, dict) else None


def _run(folder: Path, facts: Any) -> Run:
    path, kind = folder / "results.json", _kind(facts)
    if kind not in KINDS:
        raise InputError(
            f"{path} does not say that mjp {' or mjp '.join(KINDS)} wrote it: leave it out, or run that command again"
        )
    if not isinstance(facts.get("models"), dict) or not facts["models"]:
        raise InputError(f"{path} holds no models: run mjp {kind} again")
    return Run(folder, kind, facts)
