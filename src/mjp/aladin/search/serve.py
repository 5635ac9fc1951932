"""A page for searching an index, for the people of this machine alone.

    /                        the query box; with ?q= the nearest vectors beside the same after re-ranking
    /?q=QUERY&id=ID          and what each word of the query found in one picture
    /thumb/ID                a small version of a picture
    /why/ID?q=QUERY          the picture with the patch that each word chose; with &word=N how well it answers that word

Pictures are asked for by id and found through the index: nothing from an address ever becomes part of a path. The
server listens on 127.0.0.1, answers to no other name (a foreign site that rebinds its own name to this address is
turned away), and its pages load nothing from elsewhere and run no script.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image

from mjp import __version__
from mjp.aladin.index.intake import printable
from mjp.aladin.index.neighbours import Engine
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.search.explain import draw_choices, draw_heat, explain, unread_words
from mjp.aladin.search.sheet import name, thumbnail
from mjp.aladin.search.two_stage import Found, name_hits, read_query, two_stage
from mjp.common.errors import InputError
from mjp.common.style import page_css

HERE = Path(__file__).parent / "page"
LONGEST_QUERY = 500  # characters
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data:; style-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Answer(NamedTuple):
    status: int
    kind: str
    body: bytes


MALFORMED = Answer(400, "text/plain; charset=utf-8", b"This is no address.\n")
MISSING = Answer(404, "text/plain; charset=utf-8", b"There is nothing here.\n")


@dataclass(frozen=True)
class Site:
    """What is answered to an address. The index is looked at anew every time, so it may change meanwhile."""

    folder: Path
    model: Aladin
    k: int = 12
    rerank: int = 20
    engine: Engine = "exact"

    def __post_init__(self) -> None:
        self._index()

    @cached_property
    def _hash(self) -> str:
        return self.model.hash

    def _index(self) -> Index:
        """The index as it is now; one of another model may have taken its place."""
        index = Index(self.folder)
        index.check_model(self._hash)
        return index

    def answer(self, address: str) -> Answer:
        try:
            parts = urlsplit(address)
        except ValueError:  # http://[/
            return MALFORMED
        given = {key: values[0] for key, values in parse_qs(parts.query).items()}
        whole = given.get("q", "").strip()
        text = whole[:LONGEST_QUERY]
        match parts.path.split("/")[1:]:
            case [""]:
                return self._page(text, given.get("id"), text != whole)
            case ["page.css"]:
                return Answer(200, "text/css; charset=utf-8", (page_css() + (HERE / "page.css").read_text()).encode())
            case ["thumb", picture]:
                return self._thumb(picture)
            case ["why", picture] if text:
                return self._why(picture, text, given.get("word"))
        return MISSING

    def _page(self, text: str, chosen: str | None, cut: bool) -> Answer:
        index = self._index()
        facts: dict[str, Any] = {
            "query": text,
            "pictures": len(index),
            "version": __version__,
            "rerank": min(self.rerank, len(index)),
        }
        facts |= {"error": None, "cut": cut, "columns": [], "why": None}
        if text:
            try:
                facts |= self._found(index, text, chosen)
                facts["cut"] = cut or unread_words(self.model, text) > 0
            except InputError as error:
                facts["error"] = str(error)
        return Answer(200, "text/html; charset=utf-8", _template().render(facts).encode())

    def _found(self, index: Index, text: str, chosen: str | None) -> dict[str, Any]:
        query = read_query(self.model, text)
        vector, aligned = two_stage(index, self.model, query, self.k, self.rerank, self.engine)
        columns = [("By vector", _cards(name_hits(index, vector)))]
        if self.rerank:
            columns.append(("Re-ranked", _cards(name_hits(index, aligned))))
        row = None if chosen is None else index.row(chosen)
        if chosen is None or row is None:
            return {"columns": columns}
        words = explain(index, self.model, text, query, row)
        paths = [printable(path) for path in index.catalogue.paths(chosen)]
        return {"columns": columns, "why": {"id": chosen, "paths": paths, "words": words}}

    def _thumb(self, picture: str) -> Answer:
        found = self._picture(self._index(), picture, 320)
        return MISSING if found is None else _jpeg(found)

    def _why(self, picture: str, text: str, word: str | None) -> Answer:
        index = self._index()
        row, shown = index.row(picture), self._picture(index, picture, 480)
        if row is None or shown is None:
            return MISSING
        try:
            words = explain(index, self.model, text, read_query(self.model, text), row)
        except InputError:
            return MISSING
        if word is None:
            return _jpeg(draw_choices(shown, words, index.facts.grid))
        chosen = dict(zip(map(str, range(len(words))), words, strict=True)).get(word)
        if chosen is None:
            return MISSING
        hidden = index.codes(torch.tensor([row])).unknown[0]
        return _jpeg(draw_heat(shown, chosen, index.facts.grid, hidden))

    def _picture(self, index: Index, picture: str, side: int) -> Image.Image | None:
        """A picture of the index; None for an id that is not in it, or a file that cannot be read any more."""
        return thumbnail(index.catalogue.paths(picture), side)


def serve(site: Site, port: int) -> ThreadingHTTPServer:
    """A server for this machine alone; port 0 takes any that is free. The caller lets it run."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 20  # a browser opens connections in advance: they must not stay for ever
        server_version, sys_version = "mjp", ""

        def handle(self) -> None:
            with suppress(ConnectionError):  # a browser that has lost interest
                super().handle()

        def do_GET(self) -> None:
            if self.headers.get("Host", "").lower() not in hosts:
                self._send(Answer(421, "text/plain; charset=utf-8", b"This server answers to localhost alone.\n"))
                return
            try:
                self._send(site.answer(self.path))
            except InputError as error:  # the index has gone, or is of another model now
                self._send(Answer(500, "text/plain; charset=utf-8", f"{error}\n".encode(errors="replace")))

        do_HEAD = do_GET  # the same answer without its body

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for key, value in {**HEADERS, "Content-Type": answer.kind}.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Queries are nobody's business."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    hosts = {f"{name}:{server.server_port}" for name in ("127.0.0.1", "localhost")}
    if server.server_port == 80:
        hosts |= {"127.0.0.1", "localhost"}
    return server


def _cards(found: list[Found]) -> list[dict[str, Any]]:
    return [{"id": each.id, "name": name(each), "hit": each.hit} for each in found]


def _jpeg(picture: Image.Image) -> Answer:
    buffer = BytesIO()
    picture.save(buffer, "JPEG", quality=88)
    return Answer(200, "image/jpeg", buffer.getvalue())


def _template() -> Any:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,  # queries and file names are whatever somebody typed
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")
