"""The pages of an index: what is answered to which address.

    /                        the query box; with ?q= the nearest vectors beside the same after re-ranking
    /?q=QUERY&id=ID          and how each word of the query matches one picture
    /thumb/ID                a small version of a picture
    /why/ID?q=QUERY          the picture with the best patch of each word; with &word=N a map of that word

Pictures are addressed by id and found through the index: no part of an address ever becomes part of a path.
"""

from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from PIL import Image

from mjp import __version__
from mjp.aladin.search.draw import draw_frames, draw_heat
from mjp.aladin.search.explain import unread_words
from mjp.aladin.search.searcher import PictureSearch
from mjp.aladin.search.sheet import file_name
from mjp.aladin.search.two_stage import Match
from mjp.common.errors import InputError
from mjp.common.style import page_css
from mjp.common.terminal import printable
from mjp.common.validate import whole
from mjp.pictures.thumbnails import Thumbnails

HERE = Path(__file__).parent / "page"
MAX_QUERY = 500  # characters
THUMBNAIL, EXPLANATION = 320, 480  # longer side in pixels


class Answer(NamedTuple):
    status: int
    kind: str
    body: bytes


def text_answer(status: int, text: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", f"{text}\n".encode(errors="replace"))


MALFORMED = text_answer(400, "Bad request: malformed URL.")
MISSING = text_answer(404, "Not found.")


@dataclass(frozen=True)
class Site:
    """Answers by address. Every answer shows the present state of the index."""

    searcher: PictureSearch
    k: int = 12
    rerank: int = 20
    thumbnails: Thumbnails = field(init=False)

    def __post_init__(self) -> None:
        whole("-k", self.k, least=1)
        whole("--rerank", self.rerank)
        object.__setattr__(self, "thumbnails", Thumbnails(max_pixels=self.searcher.max_pixels))

    def answer(self, address: str) -> Answer:
        try:
            parts = urlsplit(address)
        except ValueError:  # http://[/
            return MALFORMED
        parameters = {key: values[0] for key, values in parse_qs(parts.query).items()}
        typed = parameters.get("q", "").strip()
        text = typed[:MAX_QUERY]
        match parts.path.split("/")[1:]:
            case [""]:
                return self._page(text, parameters.get("id"), text != typed)
            case ["page.css"]:
                return Answer(200, "text/css; charset=utf-8", (page_css() + (HERE / "page.css").read_text()).encode())
            case ["thumb", picture]:
                thumbnail = self._picture(picture, THUMBNAIL)
                return MISSING if thumbnail is None else _jpeg(thumbnail)
            case ["why", picture] if text:
                return self._explanation(picture, text, parameters.get("word"))
        return MISSING

    def _page(self, text: str, picture: str | None, cut: bool) -> Answer:
        count = len(self.searcher)
        values: dict[str, Any] = {
            **{"query": text, "pictures": count, "version": __version__, "rerank": min(self.rerank, count)},
            **{"error": None, "cut": cut, "columns": [], "why": None},
        }
        if text:
            try:
                values["columns"] = self._columns(text)
                values["why"] = None if picture is None else self._why(text, picture)
                values["cut"] = cut or unread_words(self.searcher.model, text) > 0
            except InputError as error:
                values["error"] = str(error)
        return Answer(200, "text/html; charset=utf-8", _template().render(values).encode())

    def _columns(self, text: str) -> list[tuple[str, list[dict[str, Any]]]]:
        stages = self.searcher.stages(text, k=self.k, rerank=self.rerank)
        columns = [("By vector", _cards(stages.vector))]
        return [*columns, ("Re-ranked", _cards(stages.reranked))] if self.rerank else columns

    def _why(self, text: str, picture: str) -> dict[str, Any] | None:
        words = self.searcher.explain(text, picture, decoding=self.thumbnails.decoding)
        if words is None:
            return None
        paths = [printable(path) for path in self.searcher.index.catalogue.paths(picture)]
        return {"id": picture, "paths": paths, "words": words}

    def _explanation(self, picture: str, text: str, word: str | None) -> Answer:
        thumbnail = self._picture(picture, EXPLANATION)
        try:
            words = self.searcher.explain(text, picture, decoding=self.thumbnails.decoding)
        except InputError:
            return MISSING
        index = self.searcher.index
        row = index.row(picture)
        if thumbnail is None or words is None or row is None:
            return MISSING
        if word is None:
            return _jpeg(draw_frames(thumbnail, words, index.config.grid))
        numbered = {str(number): word for number, word in enumerate(words)}
        if word not in numbered:
            return MISSING
        hidden = index.codes(torch.tensor([row])).unknown[0]
        return _jpeg(draw_heat(thumbnail, numbered[word], index.config.grid, hidden))

    def _picture(self, picture: str, side: int) -> Image.Image | None:
        """A picture of the index; None for an id that is not in it, or a file that cannot be read any more."""
        return self.thumbnails.get(self.searcher.index.catalogue.paths(picture), side)


def _cards(matches: list[Match]) -> list[dict[str, Any]]:
    return [{"id": match.id, "name": file_name(match), "hit": match} for match in matches]


def _jpeg(picture: Image.Image) -> Answer:
    buffer = BytesIO()
    picture.save(buffer, "JPEG", quality=88)
    return Answer(200, "image/jpeg", buffer.getvalue())


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,  # queries and file names are whatever somebody typed
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")
