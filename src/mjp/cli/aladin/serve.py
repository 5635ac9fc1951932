"""Search an index on a page in the browser: the nearest vectors beside the re-ranked ones, and the patch of each word.

The page is for this machine only: the server listens on 127.0.0.1 and loads nothing from elsewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mjp.common.results import Results


@dataclass
class Options:
    index: tyro.conf.Positional[Path]
    """Folder of the index."""
    port: int = 8377
    """Port on 127.0.0.1; 0 takes any free one."""
    k: Annotated[int, tyro.conf.arg(aliases=["-k"])] = 12
    """How many pictures to show."""
    rerank: int = 20
    """How many of the nearest to sort by the alignment score; 0 for none."""
    engine: Literal["exact", "ivf", "hnsw"] = "exact"
    """Compare with every vector, or approximately with faiss (mjp[faiss]), for millions of pictures."""
    model: str | None = None
    """Folder of the model; default: the one that made the index."""
    max_pixels: int | None = None
    """Do not show pictures with more pixels; default: 100 million, or the environment variable MJP_MAX_PIXELS."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""


def run(options: Options) -> Iterator[Results]:
    from mjp.aladin import open_index
    from mjp.aladin.search.server import make_server
    from mjp.aladin.search.site import Site
    from mjp.common.results import make_results

    settings = {name: getattr(options, name) for name in ("model", "engine", "max_pixels", "device")}
    site = Site(open_index(options.index, **settings), options.k, options.rerank)
    with make_server(site, options.port) as server:
        address = f"http://127.0.0.1:{server.server_port}/"
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        yield make_results("aladin serve", options, {"address": address})
        server.serve_forever()
