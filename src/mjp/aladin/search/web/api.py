"""Answers as JSON. Objects of a search are those that `mjp aladin search --json` prints."""

from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from mjp import __version__
from mjp.aladin.search.searcher import PictureSearch
from mjp.aladin.search.table import iso_date, match_entries, word_entries
from mjp.aladin.search.web.parameters import MAX_QUERY, Defaults, is_cut, query_text, read_request
from mjp.common.terminal import as_text

CUT = f"the query has more than {MAX_QUERY} letters: the rest was not read"


class Api:
    """The functions behind /api/, which run in threads."""

    def __init__(self, searcher: PictureSearch, defaults: Defaults) -> None:
        self.searcher = searcher
        self.defaults = defaults

    def search(self, http: HttpRequest) -> Response:
        request = read_request(http.query_params, self.defaults)
        stages = self.searcher.stages(request)
        body: dict[str, Any] = {
            "query": request.text,
            "like": request.like,
            "offset": request.offset,
            "total": stages.total,
            "doubtful": stages.doubtful,
            "matches": match_entries(stages.reranked, {}),
            "by_vector": match_entries(stages.vector, {}),
            "notes": [CUT] * is_cut(http.query_params) + (self.searcher.notes(request.text) if request.text else []),
        }
        return json_answer(body)

    def picture(self, http: HttpRequest) -> Response:
        name = http.path_params["id"]
        entry = self.searcher.entry(name)
        if entry is None:
            return missing()
        paths = [as_text(path) for path in entry.paths]
        return json_answer({"id": entry.id, "paths": paths, "date": iso_date(entry.date)})

    def explain(self, http: HttpRequest) -> Response:
        words = self.searcher.explain(query_text(http.query_params), http.path_params["id"])
        return missing() if words is None else json_answer({"words": word_entries(words)})

    def status(self, http: HttpRequest) -> Response:
        config = self.searcher.gallery.config
        facts = {"version": __version__, "index": self.searcher.gallery.name, "pictures": len(self.searcher)}
        return json_answer({**facts, "model": config.model, "grid": config.grid, "mask_ratio": config.mask_ratio})


def json_answer(body: dict[str, Any], status: int = 200) -> Response:
    return JSONResponse(body, status, headers={"Cache-Control": "private, no-cache"})


def missing() -> Response:
    return json_answer({"error": "the index contains no such picture"}, 404)
