"""Which address gets which answer.

    /                              the picture under a jigsaw, and what the models say      (Jigsaw)
    /leak                          what a server rebuilds from a gradient of the picture    (Leak)
    /search/...                    the page of `mjp aladin serve`, if there is an index     (Search)
    /results                       the page of `mjp report`                                 (Results)
    /picture/NAME, /jigsaw.jpg     the picture, and the picture under a jigsaw
    /api/pictures                  POST: a picture to keep in memory
    /api/jigsaw, /api/consistency  what the models say, before and after
    /api/leak                      POST: start attacks
    /api/jobs/NAME                 how far they are; DELETE cancels
    /api/jobs/NAME/N.png           what they rebuilt, and picture.png: from what

Uploads are named by a random word and found in memory: no part of an address ever becomes part of a path.
"""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from mjp.app.api import Api
from mjp.app.pages import Pages, asset_file
from mjp.common.errors import InputError

TEXTS = {404: "Not found.", 405: "This address does not answer that method."}


def make_app(pages: Pages, api: Api, search: Starlette | None) -> Starlette:
    searching = Mount("/search", app=search) if search else Route("/search/", pages.no_search)
    routes = [
        Route("/", pages.jigsaw),
        Route("/leak", pages.leak),
        searching,
        Route("/results", pages.results),
        Route("/assets/{name}", asset_file),
        Route("/picture/{name}", api.picture),
        Route("/jigsaw.jpg", api.jigsaw_picture),
        Route("/api/pictures", api.upload, methods=["POST"]),
        Route("/api/jigsaw", api.jigsaw),
        Route("/api/consistency", api.consistency),
        Route("/api/leak", api.leak, methods=["POST"]),
        Route("/api/jobs/{name}", api.job),
        Route("/api/jobs/{name}", api.cancel, methods=["DELETE"]),
        Route("/api/jobs/{name}/picture.png", api.attacked_picture),
        Route("/api/jobs/{name}/{number:int}.png", api.reconstruction),
    ]
    return Starlette(routes=routes, exception_handlers={InputError: _refused, HTTPException: _failed})


def _refused(http: Request, error: Exception) -> Response:
    return _said(http, str(error), 400)


def _failed(http: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _said(http, TEXTS.get(status, "This request cannot be answered."), status)


def _said(http: Request, text: str, status: int) -> Response:
    if http.url.path.startswith("/api/"):
        return JSONResponse({"error": text}, status)
    return PlainTextResponse(f"{text}\n".encode(errors="replace"), status)
