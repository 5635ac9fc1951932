"""The rule by which a claim holds, does not hold, or stays undecided.

It was written before the runs. Three things changed when results had been seen: σ is estimated within families of runs;
claims that were added later no longer widen the intervals of the others; and few degrees of freedom widen an interval.
The last two changed one verdict, to undecided.

A claim compares two runs, X and Y, in one quantity, as X − Y, signed so that the claim says "greater than −margin".
Every run has S seeds and P pictures, and X and Y share both: the same seed draws the same weights and order, and the
same pictures are judged. So differences are taken picture by picture and seed by seed, d[s, p], and then

    estimate         mean of d
    standard error²  2 σ² / S + variance between pictures / P
    interval         Student's t with Welch–Satterthwaite degrees of freedom, at level 1 − .05 / C

C is the number of claims of the scale that were there before its runs; for a claim that was added later, the number of
all of them.

σ² is the variance of a run's mean from seed to seed. Three seeds of two runs say little about it, so it is estimated
from all R runs of their family (the scale file names it) that have these seeds, as the residual of the table run ×
seed, with (R − 1)(S − 1) degrees of freedom: they share architecture, data and length, and are taken to share σ and
to vary independently. While runs of the family are missing, intervals still move. Adding the variance between
pictures counts part of the residual twice, which errs on the side of caution. Where σ² has fewer than four degrees of
freedom, seeds that agree by chance would make the interval too narrow, and it gets the degrees of σ² alone. Two runs
of different families, and a quantity that exists once per seed (a regression error, seconds, the leak of a few
pictures), have the variance of their own differences over seeds.

    holds          the whole interval is above −margin
    does not hold  the whole interval is below −margin
    undecided      otherwise
    gated          a network that loses hardly anything when its patches are shuffled proves nothing about positions

`margin` is zero for "better than" and a stated loss for "no worse than".
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Outcome = Literal["holds", "does not hold", "undecided", "gated", "not run"]
LEVEL = 0.05
FEW = 4  # degrees of freedom below which those of the pictures do not help


@dataclass(frozen=True)
class Difference:
    """An estimated difference with its interval."""

    mean: float
    low: float
    high: float
    seeds: int
    pictures: int | None


class Variance(NamedTuple):
    """An estimated variance and its degrees of freedom."""

    value: float
    degrees: int


def seed_variance(means: NDArray[np.float64]) -> Variance | None:
    """σ² of (R, S) means of runs by seed: the residual after the effects of run and seed; None below two of either."""
    runs, seeds = means.shape
    if runs < 2 or seeds < 2:
        return None
    residuals = means - means.mean(0) - means.mean(1, keepdims=True) + means.mean()
    degrees = (runs - 1) * (seeds - 1)
    return Variance(float((residuals**2).sum() / degrees), degrees)


def paired_difference(
    differences: NDArray[np.float64], *, comparisons: int = 1, of_seeds: Variance | None = None
) -> Difference:
    """The mean of (S, P) differences, or of (S,) ones, with an interval that allows for several comparisons.

    `of_seeds` is σ² of one run's mean; without it the differences speak for themselves.
    """
    by_seed = differences.mean(1) if differences.ndim == 2 else differences  # (S,)
    seeds = len(by_seed)
    if seeds < 2:  # one seed says nothing about the next one
        return Difference(float(by_seed.mean()), -np.inf, np.inf, seeds, _pictures(differences))
    if of_seeds is None:
        of_seeds = Variance(by_seed.var(ddof=1) / 2, seeds - 1)
    variances = [(2 * of_seeds.value / seeds, of_seeds.degrees)]
    if differences.ndim == 2 and differences.shape[1] > 1:
        by_picture = differences.mean(0)  # (P,)
        variances.append((by_picture.var(ddof=1) / len(by_picture), len(by_picture) - 1))
    total = sum(variance for variance, _ in variances)
    if total == 0:  # numbers that agree to the last bit tell nothing about their spread
        half = np.inf
    else:
        welch = total**2 / sum(variance**2 / degrees for variance, degrees in variances)
        freedom = of_seeds.degrees if of_seeds.degrees < FEW else welch
        half = float(student.ppf(1 - LEVEL / (2 * comparisons), freedom) * np.sqrt(total))
    mean = float(by_seed.mean())
    return Difference(mean, mean - half, mean + half, seeds, _pictures(differences))


def decide(difference: Difference, *, margin: float = 0.0) -> Outcome:
    """What the interval says about "greater than −margin"."""
    if difference.low > -margin:
        return "holds"
    return "does not hold" if difference.high < -margin else "undecided"


def _pictures(differences: NDArray[np.float64]) -> int | None:
    return differences.shape[1] if differences.ndim == 2 else None
