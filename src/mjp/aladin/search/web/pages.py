"""Answers as HTML. The templates are compiled once; everything that people wrote is escaped."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, Response

from mjp import __version__
from mjp.aladin.search.explain import Word, is_stop_word
from mjp.aladin.search.request import Request
from mjp.aladin.search.searcher import PictureSearch
from mjp.aladin.search.two_stage import Match
from mjp.aladin.search.web.files import Files
from mjp.aladin.search.web.parameters import FILTERS, Defaults, is_cut, query_text, read_request, spoken
from mjp.common.errors import InputError
from mjp.common.style import page_css
from mjp.common.terminal import printable

HERE = Path(__file__).parent
NO_RESULTS = dict[str, Any](columns=[], error=None, beyond=False, notes=[], newer=None, older=None)
PARAMETERS = ("q", "like", *FILTERS, "sort")  # what a search carries from page to page


class View(NamedTuple):
    """A page beside this one, where the search is part of something larger."""

    title: str
    address: str


class Pages:
    """The functions behind / and /picture/, which run in threads."""

    def __init__(self, searcher: PictureSearch, files: Files, defaults: Defaults, views: Sequence[View]) -> None:
        self.searcher = searcher
        self.files = files
        self.defaults = defaults
        self.views = views

    def results(self, http: HttpRequest) -> Response:
        parameters = http.query_params
        values = self._common(http) | NO_RESULTS
        status = 200
        if values["asked"]:
            try:
                values |= self._answer(parameters)
            except InputError as error:
                values["error"] = spoken(error)
                status = 400
        return _html("results.html", values, status)

    def picture(self, http: HttpRequest) -> Response:
        """One picture enlarged, where it is, and why it matches the query."""
        name, parameters = http.path_params["id"], http.query_params
        values = self._common(http)
        entry = self.searcher.entry(name)
        if entry is None:
            gone = "The index does not contain this picture any more."
            return _html("results.html", values | NO_RESULTS | {"error": gone}, 404)
        text, words = query_text(parameters), []
        if text:
            try:
                words = self.files.explain(text, name) or []
            except InputError:  # a query without a word to explain
                words = []
        readable = [path for path in entry.paths if path.is_file()]
        values |= {"id": name, "exists": bool(readable), "date": _day(entry.date)} | _explained(words)
        values["name"] = printable((readable or entry.paths)[0].name)
        values["places"] = [
            {"path": printable(path), "link": root_of(http) + _in_folder(path, {"q": text} if text else {"like": name})}
            for path in entry.paths
        ]
        return _html("picture.html", values)

    def _common(self, http: HttpRequest) -> dict[str, Any]:
        parameters = http.query_params
        carried = {name: parameters.get(name, "").strip() for name in PARAMETERS} | {"q": query_text(parameters)}
        like = self.searcher.entry(carried["like"]) if carried["like"] else None
        return {
            **{"version": __version__, "pictures": len(self.searcher)},
            **{"root": root_of(http), "views": self.views},
            **{"script": asset("page.js")[0], "css": asset("page.css")[0]},
            **{"carried": carried, "link": urlencode({name: value for name, value in carried.items() if value})},
            **{"asked": bool(carried["q"] or carried["like"]), "cut": is_cut(parameters)},
            "like_name": None if like is None else printable(like.paths[0].name),
            "filtered": any(carried[name] for name in (*FILTERS, "sort")),
        }

    def _answer(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        request = read_request(parameters, self.defaults)
        stages = self.searcher.stages(request)
        columns = [("By vector", NOTES["vector"], _cards(stages.vector))]
        if request.rerank and request.by_words and self.searcher.model.alignment_trained:
            note = NOTES["reranked"].format(count=min(request.rerank, stages.total))
            columns.insert(0, ("Best matches", note, _cards(stages.reranked)))
        page = request.offset // request.k + 1
        return {
            "columns": columns,
            "notes": [NOTHING] * bool(stages.doubtful) + (self.searcher.notes(request.text) if request.text else []),
            "newer": page - 1 if page > 1 else None,
            "older": page + 1 if request.offset + request.k < stages.total else None,
            "first": request.offset + 1,
            "last": request.offset + len(stages.reranked),
            "total": stages.total,
        } | _nothing(request, stages.total)


NOTHING = "perhaps nothing here really matches: these are the nearest"
NOTES = {
    "reranked": "The {count} nearest, sorted by how well words and patches align.",
    "vector": "Sorted by the cosine of picture and query alone.",
}


def _nothing(request: Request, total: int) -> dict[str, Any]:
    """What to say if there is nothing to show."""
    if not total:
        return {"error": "No picture passes these filters."}
    if request.offset >= total:
        return {"error": f"This page is beyond the last of {total} matches.", "beyond": True}
    return {}


def _explained(words: list[Word]) -> dict[str, Any]:
    """The words with a map, each with its number, and those that name nothing."""
    numbered = list(enumerate(words))
    return {
        "words": [(number, word) for number, word in numbered if not is_stop_word(word.text)],
        "stop_words": [word for word in words if is_stop_word(word.text)],
        "points": any(word.place is not None for word in words),
    }


def _cards(matches: list[Match]) -> list[dict[str, Any]]:
    return [_card(match) for match in matches]


def _card(match: Match) -> dict[str, Any]:
    path = next((path for path in match.paths if path.is_file()), None)
    name = printable((path or match.paths[0]).name)
    return {"id": match.id, "name": name, "exists": path is not None, "hit": match, "date": _day(match.date)}


def _in_folder(path: Path, query: dict[str, str]) -> str:
    return "/?" + urlencode({**query, "folder": str(path.parent)}, errors="surrogateescape")


def _day(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / 1e9).strftime("%d %b %Y").lstrip("0")


def _html(template: str, values: dict[str, Any], status: int = 200) -> Response:
    body = _templates().get_template(template).render(values)
    return HTMLResponse(body, status, headers={"Cache-Control": "private, no-cache"})


def root_of(http: HttpRequest) -> str:
    """Where the search is mounted: empty, or as /search."""
    root: str = http.scope.get("root_path", "")
    return root


@cache
def asset(name: str) -> tuple[str, str]:
    """The address of a file that every page loads, which changes with its content, and the content."""
    text = (page_css() if name.endswith(".css") else "") + (HERE / name).read_text(encoding="utf-8")
    return f"/{name}?{sha256(text.encode()).hexdigest()[:12]}", text


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,  # queries and file names are whatever somebody typed
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
