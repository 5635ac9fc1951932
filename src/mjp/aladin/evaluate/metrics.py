"""The quality of a ranking.

Scores are a matrix (B, C), pictures against captions; `owner` (C,) is the picture of each caption.

i2t   a picture is the query, captions are ranked; its rank is that of the best of its own captions
t2i   a caption is the query, pictures are ranked

Ties count against the scorer: whatever scores like the right answer is ranked before it. A scorer that gives every pair
the same score comes last, not first.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.stats import Bootstrap, Interval, interval

LEVELS = (1, 5, 10)


class Ranks(NamedTuple):
    """1 is the best rank."""

    i2t: Tensor  # (B,)
    t2i: Tensor  # (C,)


class Recall(NamedTuple):
    """Recall in percent at 1, 5 and 10; median and mean rank; rsum is the sum of the six recalls."""

    i2t: tuple[float, float, float]
    t2i: tuple[float, float, float]
    i2t_median: float
    t2i_median: float
    i2t_mean: float
    t2i_mean: float

    @property
    def rsum(self) -> float:
        return sum(self.i2t) + sum(self.t2i)


def ranks(scores: Tensor, owner: Tensor) -> Ranks:
    if not bool(scores.isfinite().all()):
        raise InputError("some scores are not finite: the model is broken")
    pictures = torch.arange(len(scores), device=scores.device)
    same = owner == pictures.unsqueeze(1)  # (B, C)
    if not bool(same.any(1).all()):
        raise InputError(f"picture {int((~same.any(1)).nonzero()[0])} has no caption to be found by")
    best = scores.masked_fill(~same, -torch.inf).amax(1, keepdim=True)
    i2t = 1 + ((scores >= best) & ~same).sum(1)
    true = scores[owner, torch.arange(len(owner), device=owner.device)]  # (C,)
    t2i = (scores >= true).sum(0)  # the right picture counts itself
    return Ranks(i2t, t2i)


def recall(ranks: Ranks) -> Recall:
    shares = [tuple(100 * float((r <= k).double().mean()) for k in LEVELS) for r in ranks]
    median = [float(r.double().quantile(0.5)) for r in ranks]
    mean = [float(r.double().mean()) for r in ranks]
    return Recall(shares[0], shares[1], median[0], median[1], mean[0], mean[1])  # type: ignore[arg-type]


def folded_recall(scores: tuple[Tensor, ...], owner: Tensor, size: int, rank: Callable[..., Ranks] = ranks) -> Recall:
    """The mean over galleries of `size` consecutive pictures, as COCO's 1K figures are; a smaller rest is dropped.

    `rank` receives each gallery's part of every matrix, and the owners in it.
    """
    folds, count = [], len(scores[0])
    for start in range(0, count - size + 1, size):
        inside = (owner >= start) & (owner < start + size)
        parts = [matrix[start : start + size, inside] for matrix in scores]
        folds.append(recall(rank(*parts, owner[inside] - start)))
    if not folds:
        raise InputError(f"a fold needs {size} pictures, there are only {count}")
    columns = [sum(values) / len(folds) for values in zip(*(_flat(fold) for fold in folds), strict=True)]
    i2t, t2i = (columns[0], columns[1], columns[2]), (columns[3], columns[4], columns[5])
    return Recall(i2t, t2i, *columns[6:])


def _flat(result: Recall) -> tuple[float, ...]:
    return (*result.i2t, *result.t2i, *result[2:])


def rsum_intervals(
    ranks_of: dict[str, Ranks], owner: Tensor, baseline: str, *, seed: int
) -> dict[str, dict[str, Interval]]:
    """95 % intervals of every scorer's rsum and of its difference to a baseline, over pictures with their captions."""
    return hit_intervals({name: hits(ranks, owner) for name, ranks in ranks_of.items()}, owner, baseline, seed=seed)


def hits(ranks: Ranks, owner: Tensor) -> Tensor:
    """(B, 2): how often each picture, and how often its captions, were right at 1, 5 and 10. May be averaged."""
    pictures = torch.stack([(ranks.i2t <= k).double() for k in LEVELS]).sum(0)
    captions = torch.stack([(ranks.t2i <= k).double() for k in LEVELS]).sum(0)
    return torch.stack([pictures, torch.zeros_like(pictures).index_add(0, owner, captions)], 1)


def hit_intervals(
    hits_of: dict[str, Tensor], owner: Tensor, baseline: str, *, seed: int
) -> dict[str, dict[str, Interval]]:
    """The same from hits. All scorers share the weights of a replicate, so differences are paired."""
    captions = torch.bincount(owner).double()
    counts = torch.stack([torch.ones_like(captions), captions], 1)
    bootstrap = Bootstrap(2 + 2 * len(hits_of), seed=seed)
    bootstrap.add(torch.cat([counts, *hits_of.values()], 1))
    means = bootstrap.means()  # (1 + replicates, columns); row 0 is the data itself
    totals = {
        name: 100 * (means[:, 2 + 2 * k] / means[:, 0] + means[:, 3 + 2 * k] / means[:, 1])
        for k, name in enumerate(hits_of)
    }
    base = totals[baseline]
    return {n: {"rsum": interval(total), "difference": interval(total - base)} for n, total in totals.items()}


def rerank(first: Tensor, second: Tensor, k: int) -> Tensor:
    """Row by row: the k best of `first` in the order of `second`, the others after them in their own order.

    The resulting scores only express an order. With k as large as the gallery the order is `second`'s.
    """
    k = min(k, first.shape[1])
    # places instead of scores: 0 is last. Equal scores share a place, so ties stay ties
    places, ahead = _places(first), _places(second) + first.shape[1]
    best = first.topk(k, 1).indices
    return places.scatter(1, best, ahead.gather(1, best))


def _places(scores: Tensor) -> Tensor:
    """The rank of every score among the distinct values of its row, 0 the smallest."""
    ordered, order = scores.sort(1)
    steps = torch.zeros_like(ordered)
    steps[:, 1:] = (ordered[:, 1:] > ordered[:, :-1]).to(ordered.dtype)
    return torch.empty_like(scores).scatter(1, order, steps.cumsum(1))


def overlap(scores: Tensor, teacher: Tensor, k: int = 10) -> float:
    """Mean share, in percent, of a row's k best that are also among the teacher's k best."""
    k = min(k, scores.shape[1])
    ours, theirs = scores.topk(k, 1).indices, teacher.topk(k, 1).indices
    shared = torch.stack([torch.isin(a, b).sum() for a, b in zip(ours, theirs, strict=True)])
    return 100 * float(shared.double().mean()) / k
