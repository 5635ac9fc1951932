"""Picture files on disk: which there are, and what identifies their content."""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from mjp.common.errors import InputError
from mjp.common.files import open_regular
from mjp.common.terminal import printable
from mjp.pictures.dates import bounded
from mjp.pictures.decode import EXTENSIONS, is_picture


class Scan(NamedTuple):
    """What is under a folder."""

    paths: list[Path]
    closed: dict[Path, str]  # folders that cannot be opened, and why


def find_pictures(folder: Path) -> Scan:
    """Every file under a folder that is named like a picture, by absolute path; hidden files are skipped."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: name a folder of pictures")
    paths, errors = list[Path](), list[OSError]()
    for home, folders, names in os.walk(folder.resolve(), onerror=errors.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths += [Path(home, name) for name in sorted(names) if not name.startswith(".") and is_picture(Path(name))]
    closed = {Path(error.filename): error.strerror or type(error).__name__ for error in errors}
    if not paths:
        reasons = "".join(f"; {printable(path)} cannot be opened: {reason}" for path, reason in closed.items())
        raise InputError(f"{folder} contains no picture (by file name: {', '.join(sorted(EXTENSIONS))}){reasons}")
    return Scan(paths, closed)


def content_hash(path: Path) -> str:
    """What identifies a picture: a hash of its file's content."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def file_state(path: Path) -> tuple[int, int]:
    """Size and time of change; zeros for a file that is gone or may not be accessed."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_size, bounded(stat.st_mtime_ns)
