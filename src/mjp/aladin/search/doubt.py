"""Whether anything really matches a query, or the nearest pictures are merely the nearest.

A cosine says little: every query has a scale of its own. So the best pictures are compared with what the same query
scores elsewhere, where it has an answer if it has one anywhere:

    reach = (mean of the best pictures − mean of the others') / (best of the others' − mean of the others')

The others are training pictures for what captions taught (model/reference.py), and the codes of all classes for the
class channel: 0 is an arbitrary picture, 1 one that shows what was asked for. The two are weighed by how surely the
query names a class. docs/search.md says how often the answer is wrong, and on which pictures LIMIT was chosen.
"""

from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.class_codes import class_codes
from mjp.aladin.model.reference import load_reference

LIMIT = 0.72  # of the reach
NEAREST, BEST = 10, 3  # pictures that are looked at, and counted


class Doubt:
    """Doubts about the answers of one model."""

    def __init__(self, model: Aladin) -> None:
        self.model = model

    @cached_property
    def reference(self) -> Tensor | None:
        vectors = load_reference(self.model.home)
        return None if vectors is None else normalize(vectors, dim=-1)

    @cached_property
    def codes(self) -> Tensor:
        return normalize(class_codes(), dim=-1)

    def about(self, query: Tensor, vectors: Tensor) -> bool | None:
        """Whether a query (D,) is in doubt whose nearest pictures have these vectors (N, D).

        None if that cannot be told: for a model without a reference, or with fewer than BEST pictures.
        """
        if self.reference is None or len(vectors) < BEST:
            return None
        width = self.reference.shape[1]
        captions = reach(query[:width], vectors[:, :width], self.reference, best=BEST)
        if self.model.channel is None:
            return captions < LIMIT
        meant = query[width:]
        classes = reach(meant, vectors[:, width:], self.codes, best=1)  # a class has one code
        share = float((self.codes @ normalize(meant, dim=0)).max())
        return share * classes + (1 - share) * captions < LIMIT


def reach(query: Tensor, vectors: Tensor, others: Tensor, *, best: int) -> float:
    """How near the BEST of some pictures (N, D) come to the `best` of others (M, D), of length 1; at most 1."""
    direction = normalize(query, dim=0)
    scores, usual = normalize(vectors, dim=-1) @ direction, others @ direction
    top, mean = usual.topk(min(best, len(usual))).values.mean(), usual.mean()
    share = (scores.topk(BEST).values.mean() - mean) / (top - mean).clamp(min=torch.finfo(torch.float32).eps)
    return min(1.0, float(share))
