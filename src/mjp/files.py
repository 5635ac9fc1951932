"""Writing files so that a failure, a kill or a full disk leaves what was there before."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mjp.errors import InputError


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, bring it to the disk, and rename it."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        write(temporary)
        os.chmod(temporary, 0o644)  # some writers make files that only their owner can read
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def check_folder(path: Path) -> None:
    """Refuse, before long work begins, a folder for its results that cannot be written."""
    home = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not home.is_dir():
        raise InputError(f"the results cannot go to {path}: {home} is a file, name a folder with --out")
    if not os.access(home, os.W_OK | os.X_OK):
        raise InputError(f"the results cannot go to {path}: {home} cannot be written, name another folder with --out")


def _sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
