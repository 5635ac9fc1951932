"""`mjp aladin serve` from end to end: open the index, its thumbnails, and the socket."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mjp.aladin.index.neighbours import Engine
from mjp.aladin.index.thumbnails import thumbnail_folder
from mjp.aladin.search.searcher import open_index
from mjp.common.errors import InputError
from mjp.common.validate import whole
from mjp.pictures.thumbnail_files import ThumbnailFiles
from mjp.pictures.thumbnails import Thumbnails

if TYPE_CHECKING:
    from mjp.common.web.server import Server


@contextmanager
def serving(
    index: str,
    *,
    host: str,
    port: int,
    token: str | None,
    k: int,
    rerank: int,
    engine: Engine,
    model: str | None,
    max_pixels: int | None,
    thumbnail_mb: int,
    device: str,
) -> Iterator[tuple["Server", str]]:
    """A server that is listening, and the address to open."""
    try:
        from mjp.aladin.search.web.app import make_app
        from mjp.aladin.search.web.parameters import MAX_K, Defaults
        from mjp.common.web.server import address_of, check_token, make_server
    except ImportError as error:
        raise InputError("the page needs Starlette and uvicorn: pip install 'mjp[serve]'") from error
    whole("-k", k, least=1, most=MAX_K)
    whole("--rerank", rerank)
    check_token(host, token)
    megabytes = whole("--thumbnail-mb", thumbnail_mb)
    searcher = open_index(index, model=model, engine=engine, max_pixels=max_pixels, device=device)
    files = ThumbnailFiles(thumbnail_folder(Path(index)), megabytes * 1_000_000) if megabytes else None
    thumbnails = Thumbnails(files, max_pixels=max_pixels)
    app = make_app(searcher, thumbnails, Defaults(k, rerank))
    with make_server(app, host=host, port=port, token=token) as server:
        yield server, address_of(server, host=host, token=token)
