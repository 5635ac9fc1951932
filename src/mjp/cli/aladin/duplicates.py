"""Pictures of an index that are nearly the same, in groups, the oldest of a group first. Nothing is deleted.

Example: mjp aladin duplicates pictures.index

A picture at several paths is stored once and listed as a group of its paths. The others are close in their vectors and,
place by place, in their patches: copies in another size or compression, small crops, shots of one series. Look before
you delete: how often the groups are right has not been measured.
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from mjp.common.results import Results


@dataclass
class Options:
    index: tyro.conf.Positional[Path]
    """Folder of the index."""
    threshold: float = 0.95
    """Smallest cosine, of vectors and of patches, that counts as nearly the same."""


def run(options: Options) -> Results:
    from mjp.aladin.index.duplicates import duplicate_groups
    from mjp.aladin.index.store import Index
    from mjp.aladin.search.table import group_entries, group_text
    from mjp.common.results import make_results

    groups = duplicate_groups(Index(options.index), options.threshold)
    print(group_text(groups))
    return make_results("aladin duplicates", options, {"groups": group_entries(groups)})
