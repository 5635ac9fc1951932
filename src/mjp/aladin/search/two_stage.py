"""Search in two stages: the nearest vectors at once, then the best of them in the order of the alignment score.

query = encode_query(model, "a dog on a beach")
hits = by_vector(index, query, 20)               S^m, the matching score; milliseconds whatever the number of pictures
hits = by_alignment(index, model, query, hits)   S^a, the alignment score: exact, explains itself, and costs per picture

With as many hits as there are pictures the second stage is the exhaustive alignment search.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.aladin.index.encode import PictureEncoder
from mjp.aladin.index.neighbours import Engine, nearest
from mjp.aladin.index.scan import content_hash
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.text import UNKNOWN_PIECES
from mjp.common.errors import InputError
from mjp.pictures.decode import open_rgb

BLOCK = 1024  # pictures whose tokens are read at once


class Hit(NamedTuple):
    """A row of the index that matches a query."""

    row: int
    rank: int  # by vector, from 1
    cosine: float  # S^m
    alignment: float | None = None  # S^a, if it was computed


class Match(NamedTuple):
    """A picture that matches a query."""

    id: str  # hash of the file's content
    paths: list[Path]
    date: int  # nanoseconds since 1970: when it was taken, or else last changed
    rank: int  # by vector, from 1
    cosine: float  # S^m
    alignment: float | None = None  # S^a, if it was computed


def encode_query(model: Aladin, text: str) -> Codes:
    """The codes of a text query; refused if every piece of it is unknown: all such queries would be encoded alike."""
    if UNKNOWN_PIECES.issuperset(model.piece_names(text)):
        raise InputError(
            f"the model knows no letter of the query {text!r}: write it in the language of the captions that the model "
            "was trained on"
        )
    return model.encode_texts([text])


def encode_picture(mask_ratio: float, model: Aladin, path: Path, *, max_pixels: int | None = None) -> Codes:
    """The codes of a query picture, encoded as the pictures of an index with that mask ratio were."""
    picture = open_rgb(path, max_pixels=max_pixels, at_least=2 * max(model.vision.size))
    image = model.vision.prepare(picture).unsqueeze(0)
    return PictureEncoder(model, mask_ratio)(image, [content_hash(path)])


def by_vector(index: Index, query: Codes, k: int, engine: Engine = "exact", passing: Tensor | None = None) -> list[Hit]:
    """The k nearest pictures by cosine of the vectors, the best first; of the rows `passing` (N,) alone."""
    neighbours = nearest(index, query.vector[0], k, engine, passing=passing)
    pairs = zip(neighbours.rows.tolist(), neighbours.scores.tolist(), strict=True)
    return [Hit(row, rank, cosine) for rank, (row, cosine) in enumerate(pairs, 1)]


def by_alignment(index: Index, model: Aladin, query: Codes, hits: list[Hit]) -> list[Hit]:
    """The same hits in the order of the alignment score; of equal scores the nearer vector first."""
    if not hits:
        return []
    scores = alignment_scores(index, model, query, torch.tensor([hit.row for hit in hits]))
    scored = [hit._replace(alignment=score) for hit, score in zip(hits, scores.tolist(), strict=True)]
    return sorted(scored, key=lambda hit: -(hit.alignment or 0.0))


def two_stage(
    index: Index,
    model: Aladin,
    query: Codes,
    k: int,
    rerank: int,
    engine: Engine = "exact",
    passing: Tensor | None = None,
) -> tuple[list[Hit], list[Hit]]:
    """The best k by vector, and the best k after the first `rerank` are sorted by the alignment score."""
    first = by_vector(index, query, max(k, rerank), engine, passing)
    if not rerank:
        return first[:k], first[:k]
    return first[:k], [*by_alignment(index, model, query, first[:rerank]), *first[rerank:]][:k]


def alignment_scores(index: Index, model: Aladin, query: Codes, rows: Tensor) -> Tensor:
    """S^a (B,) of some rows, a block of them in memory at a time."""
    device = model.log_scale.device
    parts = []
    with torch.no_grad():
        for block in rows.split(BLOCK):
            codes = Codes(*(tensor.to(device) for tensor in index.codes(block)))
            parts.append(model.alignment(codes, query)[:, 0].cpu())
    return torch.cat(parts)


def match_hits(index: Index, hits: list[Hit]) -> list[Match]:
    """The pictures in the rows of hits."""
    entries = index.entries([hit.row for hit in hits])
    return [Match(*entry, *hit[1:]) for entry, hit in zip(entries, hits, strict=True)]
