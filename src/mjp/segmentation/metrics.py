"""mIoU and mAcc from a confusion matrix, with bootstrap intervals over the pictures.

A class counts if the truth has at least one pixel of it; void pixels never count. All shares are fractions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mjp.common.stats import Bootstrap, Interval, interval

IGNORE = 255  # the class of void pixels, which is why there are at most 255 classes


@dataclass(frozen=True)
class Scores:
    """What pixel counts say; NaN for a class that the truth does not have."""

    iou: Tensor  # (..., C): hits / (truth or predicted)
    recall: Tensor  # (..., C): hits / truth
    accuracy: Tensor  # (...): share of the pixels that are right

    @property
    def miou(self) -> Tensor:
        return self.iou.nanmean(-1)

    @property
    def macc(self) -> Tensor:
        return self.recall.nanmean(-1)


def confusion_matrix(prediction: Tensor, truth: Tensor, classes: int) -> Tensor:
    """(C, C) pixel counts, rows by truth, columns by prediction, of two tensors of classes of the same shape."""
    cells = torch.where(truth == IGNORE, classes * classes, truth.long() * classes + prediction.long()).flatten()
    # not bincount: it waits for a GPU to learn how long its result is
    counts = torch.zeros(classes * classes + 1, dtype=torch.int64, device=cells.device)
    counts.scatter_add_(0, cells, torch.ones_like(cells))
    return counts[:-1].view(classes, classes)


def pixel_counts(confusion: Tensor) -> Tensor:
    """(3, C): pixels of a class that were found, that the truth has, that were predicted. Sums over pictures add up."""
    return torch.stack([confusion.diagonal(), confusion.sum(1), confusion.sum(0)])


def scores(counts: Tensor) -> Scores:
    """The scores of (..., 3, C) pixel counts."""
    hits, truth, predicted = counts.double().unbind(-2)
    absent = truth == 0
    iou = (hits / (truth + predicted - hits)).masked_fill(absent, torch.nan)
    recall = (hits / truth).masked_fill(absent, torch.nan)
    return Scores(iou, recall, hits.sum(-1) / truth.sum(-1))


def intervals(counts: Tensor, *, seed: int) -> dict[str, Interval]:
    """mIoU, mAcc and pixel accuracy of (N, 3, C) counts, with 95 % intervals over the N pictures."""
    bootstrap = Bootstrap(counts[0].numel(), seed=seed)
    bootstrap.add(counts.flatten(1))
    # (1 + R, 3, C) mean counts; of the mean or of the sum, shares are the same
    replicates = scores(bootstrap.means().unflatten(1, counts.shape[1:]))
    return {
        "miou": interval(replicates.miou),
        "macc": interval(replicates.macc),
        "accuracy": interval(replicates.accuracy),
    }
