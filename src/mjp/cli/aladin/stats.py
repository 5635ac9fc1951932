"""What an index contains: pictures, size, model, dates, files that could not be read, and damage.

Every chunk is read and verified. mjp aladin index repairs a damaged index.
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from mjp.common.results import Results


@dataclass
class Options:
    index: tyro.conf.Positional[Path]
    """Folder of the index."""


def run(options: Options) -> Results:
    from mjp.aladin.index.stats import index_stats, stats_text
    from mjp.aladin.index.store import Index
    from mjp.common.results import make_results

    index = Index(options.index)
    stats = index_stats(index)
    print(stats_text(index, stats))
    return make_results("aladin stats", options, stats)
