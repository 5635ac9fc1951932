"""Pictures that are nearly the same: another size, another compression, a small crop, the next shot of a series.

Two pictures count as such if their vectors are close, and then their patches place by place: pictures of the same kind
of thing often have similar vectors, but hardly ever the same thing in every place. Where positions were hidden there is
no place by place, and the vectors decide alone. The class channel is left out: a little blur or noise moves what a
classifier says much further than what captions taught.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mjp.aladin.index.catalogue import Entry
from mjp.aladin.index.filters import EVERYTHING
from mjp.aladin.index.store import Index
from mjp.common.errors import InputError
from mjp.common.progress import track
from mjp.common.validate import number

BLOCK = 2048  # rows that are compared at once: 16 MB of cosines


class Group(NamedTuple):
    """Pictures of which each is nearly the same as another one of the group, the oldest first."""

    pictures: list[Entry]
    similarity: float  # of the least similar pair that joined it


def duplicate_groups(index: Index, threshold: float, *, class_width: int = 0) -> list[Group]:
    """Groups of near-duplicates, the most similar first; a picture at several paths is a group of its own paths too.

    `class_width`: numbers at the end of vectors and tokens that come from the class channel, `Aladin.class_width`.
    """
    if number("--threshold", threshold, least=0) > 1:
        raise InputError(f"--threshold is a cosine and at most 1, not {threshold}")
    limits = threshold, class_width
    pairs = [pair for rows, others in _close(index, *limits) for pair in _confirmed(index, rows, others, *limits)]
    groups = _joined(pairs)
    entries = iter(index.entries([row for rows, _ in groups for row in rows]))
    similar = [Group(_by_age([next(entries) for _ in rows]), similarity) for rows, similarity in groups]
    joined = {entry.id for group in similar for entry in group.pictures}
    copies = [Group([entry], 1.0) for entry in _at_several_paths(index) if entry.id not in joined]
    return sorted([*similar, *copies], key=lambda group: -group.similarity)


def _close(index: Index, threshold: float, class_width: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of rows, the first below the second, whose vectors are close."""
    if not len(index):
        return
    vectors, present = _of_captions(torch.cat(index.vectors()), class_width), index.passing(EVERYTHING)
    for start in track(range(0, len(vectors), BLOCK), "comparing"):
        for other in range(start, len(vectors), BLOCK):
            cosines = vectors[start : start + BLOCK] @ vectors[other : other + BLOCK].T
            rows, others = (cosines >= threshold).nonzero(as_tuple=True)
            rows, others = rows + start, others + other
            pairs = (rows < others) & present[rows] & present[others]
            if bool(pairs.any()):
                yield rows[pairs], others[pairs]


def _of_captions(codes: Tensor, class_width: int) -> Tensor:
    """Vectors or tokens (..., D) without the class channel, of length 1."""
    return normalize(codes[..., : codes.shape[-1] - class_width], dim=-1)


def _confirmed(
    index: Index, rows: Tensor, others: Tensor, threshold: float, class_width: int
) -> Iterator[tuple[int, int, float]]:
    """The pairs whose patches are close too, and the cosine of either, whichever is smaller."""
    for first, second in zip(rows.split(BLOCK // 16), others.split(BLOCK // 16), strict=True):
        a, b = index.codes(first), index.codes(second)
        similarity = (_of_captions(a.vector, class_width) * _of_captions(b.vector, class_width)).sum(1)
        if not index.config.mask_ratio:
            both = a.valid & b.valid
            cosines = (_of_captions(a.tokens, class_width) * _of_captions(b.tokens, class_width)).sum(-1)  # (P, R)
            similarity = similarity.minimum((cosines * both).sum(1) / both.sum(1).clamp(min=1))
        for row, other, cosine in zip(first.tolist(), second.tolist(), similarity.tolist(), strict=True):
            if cosine >= threshold:
                yield row, other, min(cosine, 1.0)


def _joined(pairs: list[tuple[int, int, float]]) -> list[tuple[list[int], float]]:
    """Pairs as groups: whoever is paired with a member belongs to it."""
    parent: dict[int, int] = {}

    def root(row: int) -> int:
        while parent.setdefault(row, row) != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    joins: list[tuple[int, float]] = []
    for row, other, cosine in sorted(pairs, key=lambda pair: -pair[2]):  # the closest first
        if root(row) != root(other):
            parent[root(other)] = root(row)
            joins.append((row, cosine))
    members: dict[int, list[int]] = {}
    for row in sorted(parent):
        members.setdefault(root(row), []).append(row)
    lowest: dict[int, float] = {}
    for row, cosine in joins:
        lowest[root(row)] = min(cosine, lowest.get(root(row), 1.0))
    return [(rows, lowest[name]) for name, rows in members.items()]


def _by_age(entries: list[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry.date, entry.paths))


def _at_several_paths(index: Index) -> list[Entry]:
    several = index.catalogue.ask(
        "SELECT p.chunk, p.row FROM pictures p JOIN files f ON f.id = p.id GROUP BY p.id HAVING COUNT(*) > 1",
        types=(int, int),
    )
    return list(index.catalogue.entries([(chunk, row) for chunk, row in several]).values())
