"""Pictures as an address asks for them: small, enlarged, as they are on disk, or with an explanation drawn on them.

A picture is named by its id and found through the index. Its file is opened where the index says it is.
"""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Lock

from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, PlainTextResponse, Response

from mjp.aladin.search.draw import draw_frames, draw_heat
from mjp.aladin.search.explain import Word
from mjp.aladin.search.searcher import PictureSearch
from mjp.aladin.search.web.parameters import query_text
from mjp.common.errors import InputError
from mjp.pictures.decode import decode_rgb
from mjp.pictures.thumbnails import Thumbnails, as_jpeg

SMALL, EXPLAINED, LARGE = 320, 480, 1600  # longer side in pixels
DAY = "private, max-age=86400"  # what an id names never changes; pages say if a file is gone
CHECK = "private, no-cache"  # ask again whether it changed
EXPLANATIONS = 32  # remembered: a page with an explanation asks for one picture per word
# what browsers show, and what runs nothing; other files are offered as a download
TYPES = {
    **{".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".webp": "image/webp"},
    **{".gif": "image/gif", ".avif": "image/avif", ".bmp": "image/bmp"},
}


class Files:
    """The functions behind /thumb/, /large/, /original/ and /why/, which run in threads."""

    def __init__(self, searcher: PictureSearch, thumbnails: Thumbnails) -> None:
        self.searcher = searcher
        self.thumbnails = thumbnails
        self.lock = Lock()
        self.explanations: OrderedDict[tuple[str, str], list[Word] | None] = OrderedDict()
        self.explained_index: object = None

    def thumb(self, http: HttpRequest) -> Response:
        return self._small(http, SMALL)

    def large(self, http: HttpRequest) -> Response:
        return self._small(http, LARGE)

    def original(self, http: HttpRequest) -> Response:
        """The file itself, as long as it is the file that was indexed or has taken its place."""
        path = next((path for path in self._paths(http) if path.is_file()), None)
        if path is None:
            return gone()
        kind = TYPES.get(path.suffix.lower())
        headers = {"Cache-Control": CHECK, "Content-Security-Policy": "sandbox; default-src 'none'"}
        name = None if kind else f"picture{path.suffix.lower()}"
        return FileResponse(path, media_type=kind or "application/octet-stream", filename=name, headers=headers)

    def why(self, http: HttpRequest) -> Response:
        """The picture with the best patch of each word; with &word=N a map of that word."""
        picture, text, word = http.path_params["id"], query_text(http.query_params), http.query_params.get("word")
        content = self.thumbnails.jpeg(self._paths(http), EXPLAINED)
        try:
            words = self.explain(text, picture)
        except InputError:
            return gone()
        codes = self.searcher.gallery.codes(picture)
        if content is None or words is None or codes is None:
            return gone()
        numbered = {str(number): word for number, word in enumerate(words)}
        if word is not None and word not in numbered:
            return gone()

        def draw() -> bytes:
            tile, grid = decode_rgb(content), self.searcher.gallery.config.grid
            if word is None:
                return as_jpeg(draw_frames(tile, words, grid))
            return as_jpeg(draw_heat(tile, numbered[word], grid, codes.unknown[0]))

        return _cached(http, f"{picture}{text}{word}{len(content)}", CHECK, draw)

    def explain(self, text: str, picture: str) -> list[Word] | None:
        """As the searcher, computed once for the pictures of a page."""
        index, key = self.searcher.gallery.config, (text, picture)
        with self.lock:
            if self.explained_index is not index:
                self.explanations.clear()
                self.explained_index = index
            if key in self.explanations:
                return self.explanations[key]
        words = self.searcher.explain(text, picture, decoding=self.thumbnails.decoding)
        with self.lock:
            self.explanations[key] = words
            while len(self.explanations) > EXPLANATIONS:
                self.explanations.popitem(last=False)
        return words

    def _small(self, http: HttpRequest, side: int) -> Response:
        content = self.thumbnails.jpeg(self._paths(http), side)
        if content is None:
            return gone()
        return _cached(http, f"{http.path_params['id']}{side}{len(content)}", DAY, lambda: content)

    def _paths(self, http: HttpRequest) -> list[Path]:
        entry = self.searcher.entry(http.path_params["id"])
        return [] if entry is None else entry.paths


def _cached(http: HttpRequest, key: str, control: str, content: Callable[[], bytes]) -> Response:
    """A JPEG with an entity tag; nothing but the tag if the browser has it already."""
    tag = f'"{sha256(key.encode(errors="replace")).hexdigest()[:20]}"'
    headers = {"Cache-Control": control, "ETag": tag}
    if tag in http.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content(), media_type="image/jpeg", headers=headers)


def gone() -> Response:
    return PlainTextResponse("Not found: the index has no such picture, or its file is gone.\n", 404)
