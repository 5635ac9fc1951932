"""Answers as HTML. A page is complete without JavaScript for the jigsaw; attacks need it to be started."""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from mjp import __version__
from mjp.aladin.search.web.pages import View
from mjp.app.models import DRAWS, Models
from mjp.app.parameters import MAX_BATCH, MAX_ROUNDS, SAMPLERS, Jigsaw, read_jigsaw
from mjp.app.pictures import SAMPLE, Uploads
from mjp.app.views import jigsaw_answers
from mjp.common.errors import InputError
from mjp.common.style import page_css
from mjp.report.page import render
from mjp.report.runs import collect
from mjp.report.sections import KINDS

HERE = Path(__file__).parent
ASSETS = {"app.css": "text/css"} | dict.fromkeys(("common.js", "jigsaw.js", "leak.js"), "text/javascript")
VIEWS = (View("Jigsaw", "/"), View("Leak", "/leak"), View("Search", "/search/"), View("Results", "/results"))
POLICY = (
    "default-src 'none'; img-src 'self' data: blob:; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
DEFENCES = (
    ("none", "no defence", True),
    ("mjp", "MJP at γ", True),
    ("mjp-sticky", "MJP, one secret jigsaw per picture", False),
    ("mjp+dither", "MJP and dither", False),
)


class Pages:
    def __init__(self, models: Models, uploads: Uploads, results: Sequence[Path]) -> None:
        self.models = models
        self.uploads = uploads
        self.results_folders = results

    def jigsaw(self, http: Request) -> Response:
        values: dict[str, Any] = {"error": None}
        try:
            jigsaw = read_jigsaw(http.query_params)
            answers = jigsaw_answers(jigsaw, self.models, self.uploads)
        except InputError as error:
            values["error"] = str(error)
            jigsaw = Jigsaw()
            answers = jigsaw_answers(jigsaw, self.models, self.uploads)
        link = urlencode(vars(jigsaw))
        values |= {"jigsaw": jigsaw, "picture": jigsaw.picture, "link": link}
        values |= {"answers": answers, "samplers": SAMPLERS, "draws": DRAWS}
        return _html("jigsaw.html", "/", values, 400 if values["error"] else 200)

    def leak(self, _: Request) -> Response:
        values = {
            **{"models": list(self.models.subjects), "chosen": self.models.default, "defences": DEFENCES},
            **{"max_rounds": MAX_ROUNDS, "max_batch": MAX_BATCH, "picture": SAMPLE, "error": None},
        }
        return _html("leak.html", "/leak", values)

    def no_search(self, _: Request) -> Response:
        return _html("no_search.html", "/search/", {})

    def results(self, _: Request) -> Response:
        """The page of `mjp report`, read anew, with the way back to the other views."""
        runs = collect(self.results_folders, kinds=KINDS)
        page = render(runs, title="Results", views=[(*view, view.address == "/results") for view in VIEWS])
        headers = {"Cache-Control": "no-store", "Content-Security-Policy": REPORT_POLICY}
        return HTMLResponse(page, headers=headers)


def asset_file(http: Request) -> Response:
    name = http.path_params["name"]
    if name not in ASSETS:
        return PlainTextResponse("Not found.\n", 404)
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}  # the address names the content
    return PlainTextResponse(_asset(name), media_type=ASSETS[name], headers=headers)


@cache
def asset_address(name: str) -> str:
    """The address of a file that pages load; it changes with the content."""
    return f"/assets/{name}?{sha256(_asset(name).encode()).hexdigest()[:12]}"


@cache
def _asset(name: str) -> str:
    return (page_css() if name.endswith(".css") else "") + (HERE / "assets" / name).read_text(encoding="utf-8")


def _html(template: str, address: str, values: dict[str, Any], status: int = 200) -> Response:
    common = {"version": __version__, "views": VIEWS, "address": address, "asset": asset_address}
    body = _templates().get_template(template).render(common | values)
    headers = {"Cache-Control": "no-store", "Content-Security-Policy": POLICY}
    return HTMLResponse(body, status, headers=headers)


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
