"""Which address gets which answer.

    /                          the query box; with ?q= or ?like=ID the matches, re-ranked and by vector
    /picture/ID?q=QUERY        a picture enlarged, and how each word of the query matches it
    /thumb/ID, /large/ID       a picture with its longer side 320 and 1600 pixels
    /original/ID               the file
    /why/ID?q=QUERY            the picture with the best patch of each word; with &word=N a map of that word
    /api/search, /api/status, /api/pictures/ID, /api/pictures/ID/explain    the same as JSON

Pictures are addressed by id and found through the index: no part of an address ever becomes part of a path.
"""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from mjp.aladin.search.searcher import PictureSearch
from mjp.aladin.search.web.api import Api, json_answer
from mjp.aladin.search.web.files import Files
from mjp.aladin.search.web.pages import Pages, View, asset, root_of
from mjp.aladin.search.web.parameters import Defaults, spoken
from mjp.common.errors import InputError
from mjp.pictures.thumbnails import Thumbnails

FOREVER = "private, max-age=31536000, immutable"  # the address names the content


def make_app(
    searcher: PictureSearch, thumbnails: Thumbnails, defaults: Defaults, *, views: Sequence[View] = ()
) -> Starlette:
    """The application. Its functions run in Starlette's pool of threads. It can be mounted, with links to `views`."""
    files = Files(searcher, thumbnails)
    pages = Pages(searcher, files, defaults, views)
    api = Api(searcher, defaults)
    routes = [
        Route("/", pages.results),
        Route("/picture/{id}", pages.picture),
        Route("/thumb/{id}", files.thumb),
        Route("/large/{id}", files.large),
        Route("/original/{id}", files.original),
        Route("/why/{id}", files.why),
        Route("/page.css", _asset),
        Route("/page.js", _asset),
        Route("/api/search", api.search),
        Route("/api/status", api.status),
        Route("/api/pictures/{id}", api.picture),
        Route("/api/pictures/{id}/explain", api.explain),
    ]
    return Starlette(routes=routes, exception_handlers={InputError: _refused, HTTPException: _failed})


def _path(http: HttpRequest) -> str:
    return http.url.path.removeprefix(root_of(http))


def _asset(http: HttpRequest) -> Response:
    name = _path(http).removeprefix("/")
    kind = "text/css" if name.endswith(".css") else "text/javascript"
    return PlainTextResponse(asset(name)[1], media_type=kind, headers={"Cache-Control": FOREVER})


def _refused(http: HttpRequest, error: Exception) -> Response:
    """What is wrong with a question (400), or with the index itself (500)."""
    if _path(http).startswith("/api/"):
        return json_answer({"error": spoken(error)}, 400)
    return PlainTextResponse(f"{error}\n".encode(errors="replace"), 500)


def _failed(http: HttpRequest, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    texts = {404: "Not found.", 405: "Only GET and HEAD are answered."}
    text = texts.get(status, "This request cannot be answered.")
    if _path(http).startswith("/api/"):
        return json_answer({"error": text}, status)
    return PlainTextResponse(f"{text}\n", status)
