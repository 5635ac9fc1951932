"""One process at a time works in a folder. The lock is the kernel's: it ends with the process, however that ends."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_held: set[int] = set()


@contextmanager
def hold_folder(folder: Path) -> Iterator[bool]:
    """Create the folder if need be and lock it; False if another run holds it. A folder left empty is removed again."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield _lock(handle)
    finally:
        _held.discard(handle)
        os.close(handle)
        if is_new:
            with suppress(OSError):
                folder.rmdir()


def _lock(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # not a Unix: no lock
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)  # some network file systems have no locks
    _held.add(handle)
    return True


def _release_in_child() -> None:
    """A forked data loader must not keep the folder locked when its parent is killed."""
    for handle in _held:
        with suppress(OSError):
            os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
