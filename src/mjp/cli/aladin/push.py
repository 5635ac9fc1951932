"""Send an index to Qdrant, for more pictures or readers than one machine serves. Run again, it sends only what is new.

Example: mjp aladin push pictures.index --to qdrant:http://localhost:6333/pictures

Afterwards search and serve take qdrant:http://localhost:6333/pictures in place of the index. Both stages run in the
server, with the same matches and scores. Pictures that have left the index are deleted there. The key of a protected
server is read from the environment variable QDRANT_API_KEY. The pictures themselves are not sent.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from mjp.common.results import Results


@dataclass
class Options:
    index: tyro.conf.Positional[Path]
    """Folder of the index."""
    to: str
    """qdrant:URL/NAME, the server and the name of the collection."""
    batch: int = 64
    """Pictures in one request."""
    model: str | None = None
    """Folder of the model; default: the one that made the index."""


def run(options: Options) -> Results:
    from mjp.aladin.search.push import push_index
    from mjp.common.results import make_results

    report = push_index(options.index, options.to, batch=options.batch, model=options.model)
    print("\n".join(f"{count:>8} {what}" for what, count in asdict(report).items()))
    return make_results("aladin push", options, asdict(report))
