"""Files that a failure, a kill or a full disk leaves whole, and files that may be opened without waiting.

A file is written into a private folder beside it, `.NAME.RANDOM.tmp/NAME`, and renamed: nobody else can put a link
there, and writers that look at the name's ending are content. A writer holds a lock on its folder, so the next one in
the same place can tell, and remove, what a killed one has left.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from mjp.common.errors import InputError

FAILURES = (OSError, RuntimeError, SafetensorError)  # the last two: torch, faiss and safetensors on a full disk


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a temporary file, bring it to the disk, and rename it to `path`; OSError if that fails.

    An existing file keeps its mode, a new one gets what the umask allows; a link is replaced, not followed.
    """
    temporary = path
    try:
        sweep(path.parent)
        with _private_folder(path) as folder:
            temporary = folder / path.name
            mode = _create(temporary, path)
            write(temporary)
            os.chmod(temporary, mode)  # a writer may have replaced the file by one that only its owner can read
            _sync(temporary)
            os.replace(temporary, path)
        _sync(path.parent)
    except FAILURES as error:
        raise _by_name(path, temporary, error) from error


def sweep(folder: Path) -> None:
    """Remove what killed writers have left in a folder; a writer that is still at work holds a lock."""
    for name in os.listdir(folder):
        if re.fullmatch(r"\..*\.[a-z0-9_]{8}\.tmp", name):
            with suppress(OSError):  # another writer was faster, holds the lock, or belongs to somebody else
                _remove_unlocked(folder / name)


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading; refuse folders, pipes, devices and sockets at once instead of waiting for them."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InputError(f"{path} is not a regular file")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check_folder(path: Path) -> None:
    """Refuse, before long work begins, a folder for its results that cannot be written."""
    parent = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not parent.is_dir():
        raise InputError(f"the results cannot go to {path}: {parent} is a file, name a folder with --out")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"the results cannot go to {path}: {parent} cannot be written, name another folder with --out")


@contextmanager
def _private_folder(path: Path) -> Iterator[Path]:
    """A locked folder beside `path` that only this user can enter, removed in the end."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name[:100]}.", suffix=".tmp", dir=path.parent))
        with suppress(FileNotFoundError):  # swept before it was locked
            handle = os.open(folder, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists():
                break
            os.close(handle)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _create(temporary: Path, path: Path) -> int:
    """Create the temporary file, and return the mode that it shall have."""
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)  # less what the umask takes away
    mode = os.fstat(handle).st_mode
    os.close(handle)
    with suppress(FileNotFoundError):
        existing = os.lstat(path).st_mode
        mode = existing if stat.S_ISREG(existing) else mode
    return stat.S_IMODE(mode)


def _remove_unlocked(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_uid == os.getuid():
            shutil.rmtree(folder)
    finally:
        os.close(handle)


def _by_name(path: Path, temporary: Path, error: Exception) -> OSError:
    """The same failure with the name of the file that was to be written."""
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, error.strerror, str(path))
    reason = " ".join(str(error).replace(str(temporary), str(path)).split())
    return OSError(f"{path} cannot be written: {reason}")


def _sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
