"""Whether anything in an index really matches a query, or the nearest pictures are merely the nearest.

A cosine says little: some queries are near to every picture, some pictures near to every query. So the score of a
picture is compared with what a list of everyday words (everyday.txt) score with the same picture, in standard
deviations above their mean; a query stands for the mean of its three best. How high that must be depends on the model
and on the index, so the everyday words themselves, most of which have an answer in few collections, are the scale: a
query that stands lower than a share DOUBTFUL of them is in doubt. docs/search.md says how often that is wrong.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin

DOUBTFUL = 0.6
NEAREST, BEST = 10, 3  # pictures that are looked at, and counted
MIN_PICTURES = 50  # with fewer there is no scale
WORDS = 32  # that are compared with an index at once


class Doubt:
    """The everyday words under one model, and their standing in one index after the other."""

    def __init__(self, model: Aladin) -> None:
        self.model = model
        self.stamp = ""
        self.limit = 0.0

    @cached_property
    def words(self) -> Tensor:
        """(W, D): vectors of the everyday words."""
        texts = (Path(__file__).parent / "everyday.txt").read_text(encoding="utf-8").split("\n")
        return self.model.encode_texts([text for text in texts if text]).vector.cpu()

    def about(self, index: Index, vectors: Tensor, cosines: Tensor) -> bool | None:
        """Whether a query is in doubt whose NEAREST pictures have these vectors (N, D) and cosines (N,).

        None if the index is too small to tell.
        """
        if len(index) < MIN_PICTURES:
            return None
        if self.stamp != index.stamp:
            self.limit = float(torch.cat(list(self._standings(index))).quantile(DOUBTFUL))
            self.stamp = index.stamp
        return bool(standing(vectors.unsqueeze(0), cosines.unsqueeze(0), self.words)[0] < self.limit)

    def _standings(self, index: Index) -> Iterator[Tensor]:
        """Where the everyday words stand, some at a time; computed once for every state of an index."""
        pieces = index.vectors()
        for words in self.words.split(WORDS):
            scores = torch.cat([words @ piece.T for piece in pieces], 1)  # (W, N)
            best = scores.topk(NEAREST)
            vectors = index.codes(best.indices.flatten()).vector.unflatten(0, best.indices.shape)
            yield standing(vectors, best.values, self.words)


def standing(vectors: Tensor, cosines: Tensor, words: Tensor) -> Tensor:
    """(Q,): how far the best pictures of queries, vectors (Q, N, D), stand above what words (W, D) score with them."""
    usual = vectors @ words.T  # (Q, N, W)
    above = (cosines - usual.mean(-1)) / usual.std(-1)
    return above.topk(min(BEST, above.shape[1])).values.mean(1)
