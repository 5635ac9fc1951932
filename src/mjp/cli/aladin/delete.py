"""Take pictures out of an index, by path, by folder or by id. The files themselves are left alone.

Example: mjp aladin delete pictures.index ~/Pictures/2019 3f2a…

A picture that lies at another path as well stays under that one; by id it goes with all its paths.
"""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass
class Options:
    index: tyro.conf.Positional[Path]
    """Folder of the index."""
    what: tyro.conf.Positional[tuple[str, ...]]
    """Paths of pictures or folders, or ids as search prints them into results.json."""


def run(options: Options) -> None:
    from mjp.aladin.index.store import Index
    from mjp.common.errors import InputError

    index = Index(options.index)
    if not options.what or not all(options.what):  # "" would be the present folder, and all that is below it
        raise InputError("name at least one picture, folder or id to take out, and no empty one")
    before, paths, ids = len(index), [], []
    for text in options.what:
        below = [file.path for file in index.catalogue.below(_absolute(text))]
        if not below and index.row(text) is None:
            raise InputError(f"{text} is neither a path nor an id in {options.index}: nothing was taken out")
        paths += below
        ids += [] if below else [text]
    index.delete(paths, ids)
    print(f"{before - len(index)} pictures taken out, {len(index)} left")


def _absolute(text: str) -> Path:
    """As indexing wrote it down: the folder resolved, the last link not followed. The file need not exist any more."""
    path = Path(text).expanduser()
    return path.resolve() if path.is_dir() else path.parent.resolve() / path.name
