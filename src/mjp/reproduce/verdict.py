"""The rule by which a claim holds, does not hold, or stays undecided. It was written before the runs.

A claim compares two runs, X and Y, in one quantity, as X − Y, signed so that the claim says "greater than −margin".
Every run has S seeds and P pictures, and X and Y share both: the same seed draws the same weights and order, and the
same pictures are judged. So differences are taken picture by picture and seed by seed, d[s, p], and then

    estimate         mean of d
    standard error²  variance between seeds / S + variance between pictures / P
    interval         Student's t with Welch–Satterthwaite degrees of freedom, at level 1 − .05 / (number of claims)

Adding both variances counts the residual twice, which errs on the side of caution. With three seeds the interval is
wide: that is what three seeds are worth. A quantity that exists once per seed (a regression error, seconds) has the
variance between seeds alone.

    holds          the whole interval is above −margin
    does not hold  the whole interval is below −margin
    undecided      otherwise
    gated          a network that loses nothing when its positions are hidden or shuffled proves nothing about positions

`margin` is zero for "better than" and a stated loss for "no worse than".
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Outcome = Literal["holds", "does not hold", "undecided", "gated", "not run"]
LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """An estimated difference with its interval."""

    mean: float
    low: float
    high: float
    seeds: int
    pictures: int | None


def paired_difference(differences: NDArray[np.float64], *, comparisons: int = 1) -> Difference:
    """The mean of (S, P) differences, or of (S,) ones, with an interval that allows for several comparisons."""
    by_seed = differences.mean(1) if differences.ndim == 2 else differences  # (S,)
    seeds = len(by_seed)
    if seeds < 2:  # one seed says nothing about the next one
        return Difference(float(by_seed.mean()), -np.inf, np.inf, seeds, _pictures(differences))
    variances = [(by_seed.var(ddof=1) / seeds, seeds - 1)]
    if differences.ndim == 2 and differences.shape[1] > 1:
        by_picture = differences.mean(0)  # (P,)
        variances.append((by_picture.var(ddof=1) / len(by_picture), len(by_picture) - 1))
    total = sum(variance for variance, _ in variances)
    if total == 0:
        half = 0.0
    else:
        freedom = total**2 / sum(variance**2 / degrees for variance, degrees in variances)
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
