"""A collection of Qdrant as search sees it (mjp[qdrant]): what `mjp aladin push` has sent there.

    qdrant:URL/NAME     as qdrant:http://localhost:6333/pictures; the key of a protected server is in QDRANT_API_KEY

Both stages run in the server, in one call: the nearest vectors, and the best of those by MaxSim over their patches,
which is MrSw. Vectors are compared exactly, so matches and scores are those of the index that was pushed. A picture is
a point with the vector "image", the multivector "patches", and a payload with paths, dates and folders.
"""

import os
import re
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import torch
from torch.nn.functional import normalize

from mjp.aladin.index.catalogue import Entry
from mjp.aladin.index.config import IndexConfig
from mjp.aladin.index.filters import Filter
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.search.gallery import Stages
from mjp.aladin.search.two_stage import Match
from mjp.common.errors import InputError, first_line

PREFIX = "qdrant:"
IMAGE, PATCHES = "image", "patches"
FORMAT = "mjp-aladin-qdrant-1"
MAXSIM = ("MrSw", "MrAVGw", "weighted")  # alignments that are a MaxSim of weighted words
ESCAPED = "\x00"  # before the bytes, in hexadecimal, of a path that is not text


class Address(NamedTuple):
    url: str
    collection: str


def is_qdrant(text: str) -> bool:
    return text.startswith(PREFIX)


def read_address(text: str) -> Address:
    """Where a collection is, from qdrant:URL/NAME; the prefix may be missing."""
    parts = re.fullmatch(r"(https?://[^/\s]+(?:/[^\s]*)?)/([\w.-]{1,200})/?", text.removeprefix(PREFIX))
    if parts is None:
        raise InputError(f"{text!r} is not an address of Qdrant: write qdrant:http://HOST:6333/NAME")
    return Address(parts[1], parts[2])


def connect(url: str) -> Any:
    """A client of the server; nothing is asked yet."""
    try:
        from qdrant_client import QdrantClient
    except ImportError as error:
        raise InputError("Qdrant needs a package: pip install 'mjp[qdrant]'") from error
    key = os.environ.get("QDRANT_API_KEY") or None
    return QdrantClient(url=url, api_key=key, timeout=60, check_compatibility=False)


def ask(address: Address, question: Any) -> Any:
    """What the server answers; a failure names it."""
    from qdrant_client.http.exceptions import ApiException

    try:
        return question()
    except (ApiException, OSError, ValueError) as error:  # ValueError: local mode
        raise InputError(f"Qdrant at {address.url} does not answer as it should: {first_line(error)}") from error


def check_maxsim(mode: str) -> None:
    """Refuse alignments that Qdrant cannot compute."""
    if mode not in MAXSIM:
        raise InputError(
            f"Qdrant ranks by the best patch of every word (MaxSim), and this model's alignment {mode} also asks for "
            "the best word of every patch: search the index on this machine, or train with --model.alignment MrSw"
        )


def open_qdrant(text: str) -> "QdrantGallery":
    address = read_address(text)
    return QdrantGallery(connect(address.url), address)


class QdrantGallery:
    """A collection and what is known about it."""

    def __init__(self, client: Any, address: Address) -> None:
        self.client = client
        self.address = address
        self.config  # noqa: B018  refuses a collection that is not one of ours

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.address.url}/{self.address.collection}"

    @cached_property
    def config(self) -> IndexConfig:
        return read_config(self.client, self.address)

    def __len__(self) -> int:
        return self._count(None)

    def stages(
        self, model: Aladin, query: Codes, window: slice, rerank: int, where: Filter, *, judge: bool = False
    ) -> Stages:
        """`judge` has no effect: the scale would take the vectors of the whole collection."""
        check_maxsim(model.config.alignment)
        condition = as_condition(where)
        total = self._count(condition)
        requests = _requests(model, query, max(window.stop, rerank), rerank, condition)
        answers = self._ask(lambda: self.client.query_batch_points(self.address.collection, requests=requests))
        ranked = enumerate(answers[0].points, 1)
        nearest = {point.id: _match(point.payload, rank, point.score) for rank, point in ranked}
        if not rerank:
            matches = list(nearest.values())[window]
            return Stages(matches, matches, total)
        scores = {point.id: point.score for point in answers[1].points}
        first = [match._replace(alignment=scores.get(name)) for name, match in list(nearest.items())[:rerank]]
        first.sort(key=lambda match: -(match.alignment or 0.0))
        vector = list(nearest.values())
        return Stages(vector[window], [*first, *vector[rerank:]][window], total)

    def codes(self, picture: str) -> Codes | None:
        point = self._point(picture, vectors=True)
        if point is None:
            return None
        tokens = torch.tensor(point.vector[PATCHES]).unsqueeze(0)  # (1, R, A)
        unknown = torch.zeros(tokens.shape[:2], dtype=torch.bool)
        unknown[0, point.payload.get("hidden", [])] = True
        return Codes(torch.tensor(point.vector[IMAGE]).unsqueeze(0), tokens, torch.ones_like(unknown), unknown)

    def entry(self, picture: str) -> Entry | None:
        point = self._point(picture, vectors=False)
        return None if point is None else read_payload(point.payload)

    def _point(self, picture: str, *, vectors: bool) -> Any:
        if not re.fullmatch("[0-9a-f]{32}", picture):
            return None
        name = self.address.collection
        points = self._ask(lambda: self.client.retrieve(name, [str(UUID(picture))], with_vectors=vectors))
        return points[0] if points else None

    def _count(self, condition: Any) -> int:
        return int(self._ask(lambda: self.client.count(self.address.collection, condition, exact=True)).count)

    def _ask(self, question: Any) -> Any:
        return ask(self.address, question)


def read_config(client: Any, address: Address) -> IndexConfig:
    """What all pictures of a collection have in common; refuses a collection that push did not make."""
    if not ask(address, lambda: client.collection_exists(address.collection)):
        raise InputError(f"Qdrant at {address.url} has no collection {address.collection}: mjp aladin push makes it")
    facts = dict(ask(address, lambda: client.get_collection(address.collection)).config.metadata or {})
    if facts.pop("format", None) != FORMAT:
        raise InputError(f"the collection {address.collection} at {address.url} was not made by mjp aladin push")
    return IndexConfig(**{**facts, "grid": tuple(facts["grid"])})


def _requests(model: Aladin, query: Codes, count: int, rerank: int, condition: Any) -> list[Any]:
    """The first stage, and both."""
    from qdrant_client import models

    vector = query.vector[0].tolist()
    exact = models.SearchParams(exact=True)
    stage: dict[str, Any] = {"query": vector, "using": IMAGE, "filter": condition, "params": exact}
    requests = [models.QueryRequest(**stage, limit=count, with_payload=True)]
    if rerank:
        words: dict[str, Any] = {"query": query_words(model, query), "using": PATCHES, "limit": rerank, "params": exact}
        requests.append(models.QueryRequest(prefetch=models.Prefetch(**stage, limit=rerank), **words))
    return requests


def query_words(model: Aladin, query: Codes) -> list[list[float]]:
    """The words of a query, as long as they count: a word's product with a patch of length 1 is what it adds."""
    mode: str = model.config.alignment
    words = query.tokens[0][query.valid[0]].float().cpu()  # (L, A)
    if mode != "weighted":
        words = normalize(words, dim=-1)
    return (words / len(words) if mode == "MrAVGw" else words).tolist()


def as_condition(where: Filter) -> Any:
    """A filter as Qdrant has it."""
    from qdrant_client import models

    must: list[Any] = []
    if where.folder is not None:
        must.append(models.FieldCondition(key="folders", match=models.MatchValue(value=path_text(where.folder))))
    for key, limits in (("date", {"gte": where.since, "lt": where.until}), ("added", {"gte": where.added_since})):
        seconds = {name: -(-limit // 10**9) for name, limit in limits.items() if limit is not None}
        if seconds:  # nanoseconds would not fit into the numbers of a range
            must.append(models.FieldCondition(key=key, range=models.Range(**seconds)))
    return models.Filter(must=must) if must else None


def path_text(path: Path) -> str:
    """A path as JSON can hold it, bytes that are not text included."""
    raw = os.fsencode(path)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return ESCAPED + raw.hex()


def text_path(text: str) -> Path:
    return Path(os.fsdecode(bytes.fromhex(text[1:])) if text.startswith(ESCAPED) else text)


def read_payload(payload: dict[str, Any]) -> Entry:
    return Entry(payload["id"], [text_path(path) for path in payload["paths"]], int(payload["date_ns"]))


def _match(payload: dict[str, Any], rank: int, cosine: float) -> Match:
    return Match(*read_payload(payload), rank, float(cosine))
