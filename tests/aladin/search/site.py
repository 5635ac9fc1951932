"""A page of eight pictures for tests, asked without a network or through a real server."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.testclient import TestClient

from aladin.gallery import draw_picture, make_gallery, take_in
from mjp.aladin.index.scan import content_hash
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.search.searcher import PictureSearch
from mjp.aladin.search.web.app import make_app
from mjp.aladin.search.web.parameters import Defaults
from mjp.common.web.server import Server, make_server
from mjp.pictures.thumbnails import Thumbnails

SCRIPT = "<img src=x onerror=document.title='gone'>.png"
QUERY = "a red sky over the <b>green</b> ground"


@dataclass
class Site:
    folder: Path
    searcher: PictureSearch
    defaults: Defaults

    @property
    def client(self) -> TestClient:
        thumbnails = Thumbnails(max_pixels=self.searcher.max_pixels)
        return TestClient(make_app(self.searcher, thumbnails, self.defaults), follow_redirects=False)

    def get(self, address: str, **settings: Any) -> Any:
        return self.client.get(address, **settings)

    def page(self, query: str, more: str = "") -> str:
        return self.get(f"/?q={quote(query)}{more}").text

    def id(self, name: str = SCRIPT) -> str:
        return content_hash(self.folder / "pictures" / name)


def make_site(folder: Path, model: Aladin, *, count: int = 7, k: int = 5, rerank: int = 8, **settings: Any) -> Site:
    """Pictures, their index, and a page of it."""
    draw_picture(make_gallery(folder / "pictures", count) / SCRIPT, 40)
    take_in(folder / "pictures", folder / "index", model)
    return Site(folder, PictureSearch(folder / "index", model, **settings), Defaults(k, rerank))


@contextmanager
def running(site: Site, app: Any = None, **settings: Any) -> Iterator[Server]:
    """A real server in a thread, of this site or of another application."""
    with make_server(app or make_app(site.searcher, Thumbnails(), site.defaults), **settings) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.uvicorn.started:
                thread.join(0.01)
            yield server
        finally:
            server.stop()
            thread.join()
