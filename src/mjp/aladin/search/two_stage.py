"""Search in two stages: the nearest vectors at once, then the best of them in the order of the alignment score.

query = read_query(model, "a dog on a beach")
hits = by_vector(index, query, 20)               S^m, the matching score; milliseconds whatever the number of pictures
hits = by_alignment(index, model, query, hits)   S^a, the alignment score: exact, explains itself, and costs per picture

With as many hits as there are pictures the second stage is the exhaustive alignment search.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.aladin.index.intake import Encoder, content_hash
from mjp.aladin.index.neighbours import Engine, nearest
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.text import NOT_KNOWN
from mjp.common.errors import InputError
from mjp.pictures.decode import open_rgb

BLOCK = 1024  # pictures whose tokens are read at once


class Hit(NamedTuple):
    """A picture that was found."""

    row: int  # in the index
    rank: int  # by vector, from 1
    cosine: float  # S^m
    alignment: float | None = None  # S^a, if it was computed


class Found(NamedTuple):
    """A hit as people know it."""

    id: str
    paths: list[Path]
    hit: Hit


def read_query(model: Aladin, text: str) -> Codes:
    """The codes of a query in words. Those of which the model knows no letter would all be read alike."""
    if NOT_KNOWN.issuperset(model.piece_names(text)):
        raise InputError(
            f"the model knows no letter of the query {text!r}: write it in the language of the captions that the model "
            "has learned from"
        )
    return model.encode_texts([text])


def read_picture(index: Index, model: Aladin, path: Path) -> Codes:
    """The codes of a query picture, encoded as the index encoded its own."""
    image = model.vision.prepare(open_rgb(path)).unsqueeze(0)
    return Encoder(model, index.facts.mask_ratio)(image, [content_hash(path)])


def by_vector(index: Index, query: Codes, k: int, engine: Engine = "exact") -> list[Hit]:
    """The k nearest pictures by cosine of the vectors, the best first."""
    found = nearest(index, query.vector[0], k, engine)
    pairs = zip(found.rows.tolist(), found.scores.tolist(), strict=True)
    return [Hit(row, rank, cosine) for rank, (row, cosine) in enumerate(pairs, 1)]


def by_alignment(index: Index, model: Aladin, query: Codes, hits: list[Hit]) -> list[Hit]:
    """The same hits in the order of the alignment score; of equals the nearer vector first."""
    scores = alignment_scores(index, model, query, torch.tensor([hit.row for hit in hits]))
    scored = [hit._replace(alignment=score) for hit, score in zip(hits, scores.tolist(), strict=True)]
    return sorted(scored, key=lambda hit: -(hit.alignment or 0.0))


def two_stage(
    index: Index, model: Aladin, query: Codes, k: int, rerank: int, engine: Engine = "exact"
) -> tuple[list[Hit], list[Hit]]:
    """The best k by vector, and the best k when the first `rerank` are put in the order of the alignment score."""
    first = by_vector(index, query, max(k, rerank), engine)
    return first[:k], [*by_alignment(index, model, query, first[:rerank]), *first[rerank:]][:k] if rerank else first[:k]


def alignment_scores(index: Index, model: Aladin, query: Codes, rows: Tensor) -> Tensor:
    """S^a (B,) of some rows, a block of them in memory at a time."""
    device = model.log_scale.device
    parts = []
    with torch.no_grad():
        for block in rows.split(BLOCK):
            codes = Codes(*(tensor.to(device) for tensor in index.codes(block)))
            parts.append(model.alignment(codes, query)[:, 0].cpu())
    return torch.cat(parts)


def name_hits(index: Index, hits: list[Hit]) -> list[Found]:
    """Ids and paths of hits."""
    found = []
    for hit in hits:
        name = index.id(hit.row)
        found.append(Found(name, index.catalogue.paths(name), hit))
    return found
