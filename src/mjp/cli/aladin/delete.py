"""Remove pictures from an index, by path, by folder or by id. The files themselves are not touched.

Example: mjp aladin delete pictures.index ~/Pictures/2019 3f2a…

A picture that is at another path as well stays under that one; by id it is removed with all its paths.
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from mjp.common.results import Results


@dataclass
class Options:
    index: tyro.conf.Positional[Path]
    """Folder of the index."""
    what: tyro.conf.Positional[tuple[str, ...]]
    """Paths of pictures or folders, or ids as search writes them into results.json."""


def run(options: Options) -> Results:
    from mjp.aladin.index.delete import delete_pictures
    from mjp.aladin.index.store import Index
    from mjp.common.results import make_results

    index = Index(options.index)
    removed = delete_pictures(index, options.what)
    print(f"{removed.pictures} pictures and {removed.paths} paths removed, {len(index)} pictures left")
    body = {"removed": removed.pictures, "removed_paths": removed.paths, "pictures": len(index)}
    return make_results("aladin delete", options, body)
