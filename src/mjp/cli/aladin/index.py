"""Index a folder of pictures for mjp aladin search. Given again, only what is new or changed is encoded.

Example: mjp aladin index ~/Pictures -o pictures.index

Pictures are known by their content: one that lies at two paths is stored once. The index holds no picture; search opens
the files where they are. A command that was killed goes on when it is given again.

With --mask-ratio the positions of that share of patches are hidden (E_unk) and their tokens stored in an order that
says nothing about where they were. This is privacy of the layout, not of the content.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass
class Options:
    pictures: tyro.conf.Positional[Path]
    """Folder of pictures; its folders are looked into."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder of the index: a new one, or one to bring up to date."""
    model: str | None = None
    """Folder of a model or of a run of mjp aladin train; by default the index's own, for a new one aladin-flickr8k."""
    mask_ratio: float | None = None
    """Share of patches whose position is hidden, for models on an MJP backbone; by default the index's own, else 0."""
    prune: bool = False
    """Take pictures out of the index that are no longer in the folder."""
    workers: int = 1
    """Processes that read pictures."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""


def run(options: Options) -> None:
    from mjp.aladin.index.intake import index_pictures
    from mjp.aladin.index.store import FACTS, Index
    from mjp.aladin.model.shipped import SHIPPED, find_aladin
    from mjp.common.device import pick_device
    from mjp.common.validate import whole

    whole("--workers", options.workers)
    before = Index(options.out).facts if (options.out / FACTS).is_file() else None
    model, source = find_aladin(options.model or (before.source if before else SHIPPED), searchable=True)
    ratio = options.mask_ratio if options.mask_ratio is not None else before.mask_ratio if before else 0.0
    index, intake = index_pictures(
        options.pictures,
        options.out,
        model.to(pick_device(options.device)),
        source,
        mask_ratio=ratio,
        prune=options.prune,
        workers=options.workers,
    )
    print(f"{intake.added:>8} pictures encoded")
    print(f"{intake.linked:>8} files with the content of another")
    print(f"{intake.unchanged:>8} files unchanged")
    if intake.sheets:
        print(f"{intake.sheets:>8} contact sheets of mjp aladin search passed over")
    if intake.unreadable:
        print(f"{len(intake.unreadable):>8} files that cannot be read: mjp aladin stats {options.out} names them")
    if intake.closed:
        print(f"{len(intake.closed):>8} folders that cannot be looked into: what is known of them stays in the index")
    if intake.gone:
        what = "taken out" if options.prune else "still in the index: --prune takes them out"
        print(f"{len(intake.gone):>8} files gone from the folder, {what}")
    print(f"\nindex  {options.out}: {len(index)} pictures, {index.bytes() / 1e6:.1f} MB")
