"""What an address asks for. Nothing in it is ever opened as a path: pictures are named by id, folders only compared."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mjp.aladin.index.filters import Filter, make_filter
from mjp.aladin.search.request import Request, Sort
from mjp.common.errors import InputError, shorten

MAX_QUERY = 500  # characters
MAX_K = 100
FILTERS = ("folder", "since", "until", "added_since")


@dataclass(frozen=True)
class Defaults:
    """What is meant if an address does not say."""

    k: int = 12
    rerank: int = 20


def read_request(parameters: Mapping[str, str], defaults: Defaults) -> Request:
    """The query in an address: q, like, k, page or offset, rerank, sort, and filters."""
    k = _number(parameters, "k", defaults.k, least=1, most=MAX_K)
    page = _number(parameters, "page", 1, least=1)
    return Request(
        text=query_text(parameters),
        like=parameters.get("like") or None,
        k=k,
        offset=_number(parameters, "offset", (page - 1) * k),
        rerank=_number(parameters, "rerank", defaults.rerank, most=max(defaults.rerank, MAX_K)),
        where=read_filter(parameters),
        sort=cast(Sort, parameters.get("sort") or "score"),  # Request checks it
    )


def query_text(parameters: Mapping[str, str]) -> str:
    return parameters.get("q", "").strip()[:MAX_QUERY]


def spoken(error: Exception) -> str:
    """What is wrong, with the names of an address in place of the command's options."""
    return re.sub(r"--(since|until|added-since|sort)\b", lambda option: option[1].replace("-", "_"), str(error))


def is_cut(parameters: Mapping[str, str]) -> bool:
    """Whether the query is too long to be read."""
    return len(parameters.get("q", "").strip()) > MAX_QUERY


def read_filter(parameters: Mapping[str, str]) -> Filter:
    days: dict[str, Any] = {name: parameters.get(name) or None for name in FILTERS[1:]}
    folder = parameters.get("folder", "").strip()
    if "\0" in folder:
        raise InputError("a folder's name has no zero byte")
    where = make_filter(**days)
    return where if not folder else Filter(Path(folder), where.since, where.until, where.added_since)


def _number(parameters: Mapping[str, str], name: str, default: int, *, least: int = 0, most: int = 10_000) -> int:
    text = parameters.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 8 and least <= int(text) <= most):
        raise InputError(f"{name} must be a whole number from {least} to {most}, not {shorten(text)}")
    return int(text)
