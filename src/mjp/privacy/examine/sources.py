"""Which files hold updates, and which the weights at which they were made: files by name, or folders (a leak log).

FOLDER/round-0001/weights.safetensors       the weights of every update beside it
FOLDER/round-0001/CLIENT.safetensors        an update
"""

from collections.abc import Sequence
from os.path import commonpath
from pathlib import Path
from typing import NamedTuple

from mjp.common.errors import InputError

WEIGHTS = "weights.safetensors"
SUFFIXES = (".safetensors", ".pt", ".pth", ".npz")


class Source(NamedTuple):
    name: str  # short, and different from those of the other sources
    file: Path
    weights: Path | None
    is_optional: bool = False  # from a folder, where one bad file must not hide what the others give away


def find_sources(paths: Sequence[Path], weights: Sequence[Path] = ()) -> list[Source]:
    """The updates among files and folders, each with its weights.

    `weights`: one file for all updates or one for each; without any, a weights.safetensors beside the update.
    """
    files = [file for path in paths for file in _files_of(path)]
    folders = [path for path in paths if path.is_dir()]
    if len(files) > 1:
        files = [file for file in files if file.name != WEIGHTS]
    if not files:
        raise InputError("name at least one update, or a folder of updates")
    _refuse_repeats(files)
    if len(weights) not in (0, 1, len(files)):
        raise InputError(
            f"--weights names {len(weights)} files for {len(files)} updates: name one for all of them, or one for each"
        )
    chosen = weights if len(weights) == len(files) else [weights[0] if weights else None] * len(files)
    names = _short_names(files)
    return [
        Source(name, file, given or _beside(file), any(folder in file.parents for folder in folders))
        for name, file, given in zip(names, files, chosen, strict=True)
    ]


def _files_of(path: Path) -> list[Path]:
    """The file itself, or the updates in a folder and the folders in it, but for what a killed writer left there."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    files = [file for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    if not [file for file in files if file.name != WEIGHTS]:
        raise InputError(f"there is no update in {path}: it should hold {', '.join(SUFFIXES)} files")
    return [file for file in files if file.name != WEIGHTS]


def _refuse_repeats(files: Sequence[Path]) -> None:
    places: dict[Path, Path] = {}
    for file in files:
        other = places.setdefault(file.resolve(), file)
        if other is not file:
            raise InputError(f"{other} is there twice: name every update once")


def _beside(file: Path) -> Path | None:
    path = file.with_name(WEIGHTS)
    return path if path.is_file() and path != file else None


def _short_names(files: Sequence[Path]) -> list[str]:
    """What the paths do not share; the name alone for a single file."""
    if len(files) == 1:
        return [files[0].name]
    paths = [file.resolve() for file in files]
    shared = commonpath([path.parent for path in paths])
    return [path.relative_to(shared).as_posix() for path in paths]
