"""Writing files so that a failure, a kill or a full disk leaves what was there before."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from mjp.common.errors import InputError


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, bring it to the disk, and rename it; OSError if that fails."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        write(temporary)
        os.chmod(temporary, 0o644)  # some writers make files that only their owner can read
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except (
        OSError,
        RuntimeError,
        SafetensorError,
    ) as error:  # the last two: torch, faiss and safetensors on a full disk
        raise _by_name(path, temporary, error) from error
    finally:
        with suppress(OSError):  # a folder that cannot be written holds no temporary file either
            temporary.unlink()


def check_folder(path: Path) -> None:
    """Refuse, before long work begins, a folder for its results that cannot be written."""
    home = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not home.is_dir():
        raise InputError(f"the results cannot go to {path}: {home} is a file, name a folder with --out")
    if not os.access(home, os.W_OK | os.X_OK):
        raise InputError(f"the results cannot go to {path}: {home} cannot be written, name another folder with --out")


def _by_name(path: Path, temporary: Path, error: Exception) -> OSError:
    """The same failure, said of the file that people know."""
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, error.strerror, str(path))
    reason = " ".join(str(error).replace(temporary.name, path.name).split())
    return OSError(f"{path} cannot be written: {reason}")


def _sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
