"""Take pictures out of an index by what a person typed."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mjp.aladin.index.store import Index
from mjp.aladin.index.thumbnails import forget_thumbnails
from mjp.common.errors import InputError


class Removed(NamedTuple):
    """How much has left an index."""

    pictures: int
    paths: int  # also those of pictures that are at another path too and stay


def delete_pictures(index: Index, names: Sequence[str]) -> Removed:
    """Remove pictures by path, by folder or by id, all of them or none."""
    if not names or not all(names):  # "" would be the present folder, and all that is below it
        raise InputError("name at least one picture, folder or id to remove, and none of them empty")
    paths, ids = list[Path](), list[str]()
    for name in names:
        below = [file.path for file in index.catalogue.below(_absolute(name))]
        if not below and index.row(name) is None:
            raise InputError(f"{name} is neither a path nor an id in {index.folder}: nothing was removed")
        paths += below
        ids += [] if below else [name]
    before = Removed(len(index), len(index.catalogue.files()))
    index.delete(paths, ids)
    forget_thumbnails(index.folder)
    return Removed(before.pictures - len(index), before.paths - len(index.catalogue.files()))


def _absolute(name: str) -> Path:
    """As indexing stored it: the folder resolved, the last link not followed. The file need not exist any more."""
    path = Path(name).expanduser()
    return path.resolve() if path.is_dir() else path.parent.resolve() / path.name
