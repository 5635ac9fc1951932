"""Search an index on a page in the browser: the nearest vectors beside the same re-ranked, and which patch answers
which word. The page is for this machine alone: it listens on 127.0.0.1 and loads nothing from elsewhere.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass
class Options:
    index: tyro.conf.Positional[Path]
    """Folder of the index."""
    port: int = 8377
    """Where to listen on 127.0.0.1; 0 takes any free port."""
    k: int = 12
    """How many pictures to show."""
    rerank: int = 20
    """How many of the nearest to put in the order of the alignment score; 0 for none."""
    engine: Literal["exact", "ivf", "hnsw"] = "exact"
    """Compare with every vector, or approximately by faiss (mjp[faiss]), for millions of pictures."""
    model: str | None = None
    """Folder of the model; by default the one that made the index."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""


def run(options: Options) -> None:
    from mjp.aladin.index.store import Index
    from mjp.aladin.model.shipped import find_aladin
    from mjp.aladin.search.serve import Site, serve
    from mjp.common.device import pick_device
    from mjp.common.errors import InputError
    from mjp.common.validate import whole

    whole("-k", options.k, least=1)
    whole("--rerank", options.rerank, least=0)
    index = Index(options.index)
    model = find_aladin(options.model or index.facts.source)[0].to(pick_device(options.device))
    site = Site(options.index, model, options.k, options.rerank, options.engine)
    try:
        server = serve(site, options.port)
    except (OSError, OverflowError) as error:
        raise InputError(f"port {options.port} cannot be used ({error}): choose another one with --port") from error
    print(f"http://127.0.0.1:{server.server_port}/  (Ctrl-C ends it)", flush=True)
    try:
        server.serve_forever()
    finally:
        server.server_close()
