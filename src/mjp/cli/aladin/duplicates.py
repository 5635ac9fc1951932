"""Pictures of an index that are nearly the same, in groups, the oldest of a group first. Nothing is deleted.

Example: mjp aladin duplicates pictures.index

A picture at several paths is stored once and listed as a group of its paths. The others are close in their vectors and,
place by place, in their patches: copies in another size or compression, small crops, shots of one series. It misses
some; docs/search.md says how many. Look before you delete.
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from mjp.common.results import Results


@dataclass
class Options:
    index: tyro.conf.Positional[Path]
    """Folder of the index."""
    threshold: float = 0.94
    """Smallest cosine, of vectors and of patches, that counts as nearly the same."""
    model: str | None = None
    """Folder of the model; default: the one that made the index."""


def run(options: Options) -> Results:
    from mjp.aladin.index.duplicates import duplicate_groups
    from mjp.aladin.index.store import Index
    from mjp.aladin.model.shipped import find_aladin
    from mjp.aladin.search.table import group_entries, group_text
    from mjp.common.results import make_results

    index = Index(options.index)
    model = find_aladin(options.model or index.config.source)
    index.config.check_model(model.hash, options.index)
    groups = duplicate_groups(index, options.threshold, class_width=model.class_width)
    print(group_text(groups))
    return make_results("aladin duplicates", options, {"groups": group_entries(groups)})
