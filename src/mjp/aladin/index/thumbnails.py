"""Where the thumbnails of an index are remembered: in the user's cache, since an index contains no picture."""

import os
import shutil
from hashlib import sha256
from pathlib import Path


def thumbnail_folder(index: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = sha256(os.fsencode(index.resolve())).hexdigest()[:16]
    return cache / "mjp" / "thumbnails" / name


def forget_thumbnails(index: Path) -> None:
    """Whoever takes pictures out of an index wants no small versions of them left."""
    shutil.rmtree(thumbnail_folder(index), ignore_errors=True)
