"""Index a folder of pictures for mjp aladin search. Run again, it encodes only what is new or changed.

Example: mjp aladin index ~/Pictures -o pictures.index

Pictures are identified by their content: one at two paths is stored once. The index contains no picture; search opens
the files where they are. Interrupted work resumes: rerun the same command. A damaged index is repaired.

With --mask-ratio the positions of that share of patches are hidden (E_unk), and their tokens are stored in an order
that reveals nothing about where they were. This protects the layout, not the content.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mjp.common.results import Results


@dataclass
class Options:
    pictures: tyro.conf.Positional[Path]
    """Folder of pictures, including its subfolders."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder of the index: a new one, or one to bring up to date."""
    model: str | None = None
    """Folder of a model or of a run of mjp aladin train; default: the index's own, for a new index aladin-flickr8k."""
    mask_ratio: float | None = None
    """Share of patches whose position is hidden, for models on an MJP backbone; default: the index's own, else 0."""
    prune: bool = False
    """Remove pictures from the index that are no longer in the folder."""
    workers: int = 1
    """Processes that read pictures."""
    max_pixels: int | None = None
    """Skip pictures with more pixels; default: 100 million, or the environment variable MJP_MAX_PIXELS."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""


def run(options: Options) -> Results:
    from mjp.aladin import index_pictures
    from mjp.common.results import make_results

    report = index_pictures(**vars(options))
    print(report)
    return make_results("aladin index", options, report.to_dict())
