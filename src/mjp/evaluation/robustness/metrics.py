"""Figures of robustness, as pure functions of a model's answers.

mCE     mean over corruptions of (error, averaged over severities) / AlexNet's; unnormalised: without the division
AURRA   area under response rate/accuracy: answer the surest pictures only; accuracy, averaged over all response rates
AUPR    area under precision/recall when outliers are to be found by −confidence (average precision)

Confidence is the largest softmax probability. Figures lie between 0 and 1 (mCE may exceed 1), with 95 % intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mjp.common.stats import Bootstrap, Interval, interval
from mjp.evaluation.robustness.strengths import SEVERITIES

# AlexNet's error on ImageNet-C, averaged over the five severities (Hendrycks and Dietterich, ICLR 2019)
ALEXNET = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}


@dataclass(frozen=True)
class CorruptionErrors:
    """Error rates by corruption; means are over the corruptions of which every severity was measured."""

    pictures: int  # in the largest set
    seed: int
    severities: tuple[int, ...]
    errors: dict[str, list[float | None]]  # one for every severity, None where it is missing
    means: dict[str, Interval]  # over the severities
    mce: Interval | None  # None unless all five severities were measured: AlexNet's errors are over five
    mce_unnormalised: Interval | None
    mce_over: int  # number of corruptions in the means


def rate_replicates(flags: Tensor, *, seed: int) -> Tensor:
    """(N, K) flags of N pictures → (1 + R, K) shares that have them: of all, then of every bootstrap replicate.

    A picture has one weight for all K, so intervals of means over K know that it is the same pictures that are hard.
    """
    collected = Bootstrap(flags.shape[1], seed=seed)
    collected.add(flags)
    return collected.means()


def corruption_errors(
    wrong: Mapping[tuple[str, int], Tensor], severities: Sequence[int] = SEVERITIES, *, seed: int
) -> CorruptionErrors:
    """Summary of the (N,) wrong answers in every (corruption, severity) that was measured."""
    replicates: dict[tuple[str, int], Tensor] = {}
    for size in {len(flags) for flags in wrong.values()}:  # sets are alike unless classes are missing
        cells = [cell for cell, flags in wrong.items() if len(flags) == size]
        columns = rate_replicates(torch.stack([wrong[cell] for cell in cells], 1), seed=seed)
        replicates |= dict(zip(cells, columns.T, strict=True))
    names = list(dict.fromkeys(name for name, _ in wrong))
    rates = {name: [replicates.get((name, severity)) for severity in severities] for name in names}
    errors = {name: [None if r is None else r[0].item() for r in row] for name, row in rates.items()}
    whole = {
        name: torch.stack([r for r in row if r is not None]).mean(0)
        for name, row in rates.items()
        if all(r is not None for r in row)
    }
    mce = plain = None
    if whole:
        plain = interval(torch.stack(list(whole.values())).mean(0))
    relative = [mean / ALEXNET[name] for name, mean in whole.items() if name in ALEXNET]
    if relative and tuple(sorted(severities)) == SEVERITIES:
        mce = interval(torch.stack(relative).mean(0))
    means = {name: interval(mean) for name, mean in whole.items()}
    pictures = max(len(flags) for flags in wrong.values())
    return CorruptionErrors(pictures, seed, tuple(severities), errors, means, mce, plain, len(whole))


def aurra(answers: Tensor) -> float:
    """(N, 2) confidence and whether it was right → area. Equally sure answers share their accuracy, in any order."""
    levels, group = answers[:, 0].unique(return_inverse=True)
    sizes = torch.bincount(group, minlength=len(levels))
    shared = torch.zeros(len(levels), dtype=torch.float64).index_add_(0, group, answers[:, 1].double()) / sizes
    right = shared[group[answers[:, 0].argsort(descending=True)]].cumsum(0)
    return (right / torch.arange(1, len(right) + 1)).mean().item()


def average_precision(outliers: Tensor, others: Tensor) -> float:
    """Scores of outliers, which should be high, and of ordinary pictures → Σ precision · gain in recall.

    Equal scores form one step, as they cannot be told apart.
    """
    scores = torch.cat([outliers, others]).double()
    positive = torch.arange(len(scores)) < len(outliers)
    order = scores.argsort(descending=True)
    last = torch.cat([scores[order].diff() != 0, torch.tensor([True])])  # the last of each step
    hits = positive[order].cumsum(0)[last].double()
    retrieved = torch.arange(1, len(scores) + 1)[last]
    gain = torch.cat([hits[:1], hits.diff()]) / len(outliers)
    return (hits / retrieved * gain).sum().item()
