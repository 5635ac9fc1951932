"""Search an index on a page in the browser: type, look for similar pictures, enlarge, see the patch of each word.

The page is for this machine only: the server listens on 127.0.0.1 and loads nothing from elsewhere. With --host other
machines can connect if they know the --token. /api/search and the rest of docs/search.md answer programs with JSON.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from mjp.common.results import Results


@dataclass
class Options:
    index: tyro.conf.Positional[str]
    """Folder of the index, or qdrant:URL/NAME for what mjp aladin push has sent there."""
    port: int = 8377
    """Port to listen on; 0 takes any free one."""
    host: str = "127.0.0.1"
    """Address to listen on. One that other machines can reach, as 0.0.0.0, needs a --token."""
    token: str | None = None
    """At least 16 letters and digits that a browser or program must know; needed beyond this machine."""
    k: Annotated[int, tyro.conf.arg(aliases=["-k"])] = 12
    """How many pictures to show on a page."""
    rerank: int = 20
    """How many of the nearest to sort by the alignment score; 0 for none."""
    engine: Literal["exact", "ivf", "hnsw"] = "exact"
    """Compare with every vector, or approximately with faiss (mjp[faiss]), for millions of pictures."""
    model: str | None = None
    """Folder of the model; default: the one that made the index."""
    max_pixels: int | None = None
    """Do not show pictures with more pixels; default: 100 million, or the environment variable MJP_MAX_PIXELS."""
    thumbnail_mb: int = 256
    """Megabytes of thumbnails to keep in the user's cache folder; 0 for none."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""


def run(options: Options) -> Iterator[Results]:
    from mjp.aladin.search.serve import serving
    from mjp.common.results import make_results

    with serving(**vars(options)) as (server, address):
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        yield make_results("aladin serve", options, {"address": address})
        server.run()
