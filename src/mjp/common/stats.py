"""Means with bootstrap confidence intervals, in one pass and in constant memory.

The Poisson bootstrap gives every picture an independent weight ~ Poisson(1) in each of R replicates; a replicate's mean
is Σ weight·value / Σ weight. Only the R sums are kept, so memory does not grow with the number of pictures.

What is not a mean is resampled the ordinary way (`resample`).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

REPLICATES = 1000
BLOCK = 64  # pictures that get their weights at once


class Interval(NamedTuple):
    """A mean and the bounds of its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    def percent(self) -> str:
        """A share as people read it: ` 12.3 [11.0, 13.7]`."""
        return f"{100 * self.mean:5.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


class Bootstrap:
    """Collects (B, K) values of K quantities, batch by batch; all quantities share the weights of a picture.

    Weights are drawn for BLOCK pictures at a time, however they are batched: intervals do not depend on the batch size.
    """

    def __init__(self, quantities: int, *, seed: int, replicates: int = REPLICATES) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.sums = torch.zeros(1 + replicates, quantities, dtype=torch.float64)  # row 0: every weight is 1
        self.weights = torch.zeros(1 + replicates, 1, dtype=torch.float64)
        self.pending = torch.zeros(0, quantities, dtype=torch.float64)  # less than a block

    def add(self, values: Tensor) -> None:
        *blocks, self.pending = torch.cat([self.pending, values.double().cpu()]).split(BLOCK)
        for block in blocks:
            self._weigh(block)

    def _weigh(self, values: Tensor) -> None:
        weights = torch.ones(len(self.sums), BLOCK, dtype=torch.float64)
        weights[1:] = torch.poisson(weights[1:], generator=self.generator)
        weights = weights[:, : len(values)]
        self.sums += weights @ values
        self.weights += weights.sum(1, keepdim=True)

    @property
    def count(self) -> int:
        return int(self.weights[0].item()) + len(self.pending)

    def means(self) -> Tensor:
        """(1 + R, K): the mean over all pictures, then that of every replicate. Nothing is added after this."""
        self._weigh(self.pending)
        self.pending = self.pending[:0]
        return self.sums / self.weights

    def intervals(self) -> list[Interval]:
        return [interval(column) for column in self.means().T]


def interval(replicates: Tensor) -> Interval:
    """(1 + R): a statistic of all pictures, then that of every replicate; one that got no picture (NaN) has no say."""
    low, high = replicates[1:].nanquantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Interval(replicates[0].item(), low, high)


def resample(statistic: Callable[..., float], *groups: Tensor, seed: int, replicates: int = REPLICATES) -> Interval:
    """`statistic(*groups)` and its interval; the rows of each group are drawn anew, with replacement."""
    generator = torch.Generator().manual_seed(seed)
    values = [statistic(*groups)]
    for _ in range(replicates):
        drawn = (torch.randint(len(group), (len(group),), generator=generator) for group in groups)
        values.append(statistic(*(group[rows] for group, rows in zip(groups, drawn, strict=True))))
    return interval(torch.tensor(values, dtype=torch.float64))
