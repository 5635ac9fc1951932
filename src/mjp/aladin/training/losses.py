"""Losses over a matrix of scores (B, C): pictures against captions.

`same` (B, C) is True where the caption belongs to the picture. A picture has several captions in a batch; none of them
is ever a negative of it, nor of another of its captions.
"""

import torch
from torch import Tensor
from torch.nn.functional import log_softmax


def triplet(scores: Tensor, same: Tensor, *, margin: float = 0.2, hardness: float = 1.0) -> Tensor:
    """Hinge against negatives, both directions, mean over the true pairs.

    hardness 1 takes the hardest negative of the batch, 0 the mean over all of them; a warm-up goes from 0 to 1, since
    the hardest negatives of a fresh network push everything to one point.
    """
    return _hinge(scores, same, margin, hardness) + _hinge(scores.T, same.T, margin, hardness)


def _hinge(scores: Tensor, same: Tensor, margin: float, hardness: float) -> Tensor:
    """Every true pair of a row against that row's negatives."""
    rows, columns = same.nonzero(as_tuple=True)  # (P,) true pairs
    cost = (margin + scores[rows] - scores[rows, columns].unsqueeze(1)).clamp(min=0)  # (P, C)
    cost = cost.masked_fill(same[rows], 0)
    hardest = cost.amax(1)
    if hardness == 1:
        return hardest.mean()
    average = cost.sum(1) / (~same[rows]).sum(1).clamp(min=1)
    return (hardness * hardest + (1 - hardness) * average).mean()


def infonce(scores: Tensor, same: Tensor) -> Tensor:
    """Cross-entropy of picking the true partner among the negatives, both directions; scores are already scaled."""
    return _contrast(scores, same) + _contrast(scores.T, same.T)


def _contrast(scores: Tensor, same: Tensor) -> Tensor:
    """−log(e^s / (e^s + Σ e^negatives)) for every true pair: other partners of the row stay out of the sum."""
    negatives = scores.masked_fill(same, -torch.inf).logsumexp(1)  # (B,)
    rows, columns = same.nonzero(as_tuple=True)
    true = scores[rows, columns]
    return (torch.logaddexp(true, negatives[rows]) - true).mean()


def listnet(student: Tensor, teacher: Tensor) -> Tensor:
    """Cross-entropy between the teacher's and the student's distributions over rows and over columns (ListNet).

    Both are already scaled. There are no labelled negatives: captions of one picture get what the teacher gives them.
    """
    return _list_entropy(student, teacher.detach()) + _list_entropy(student.T, teacher.detach().T)


def _list_entropy(student: Tensor, teacher: Tensor) -> Tensor:
    return -(teacher.softmax(1) * log_softmax(student, 1)).sum(1).mean()


def graded(scores: Tensor, relevance: Tensor) -> Tensor:
    """Cross-entropy against what a classifier holds true, both directions; scores are already scaled.

    `relevance` (B, C) in [0, 1] is the probability that the text is true of the picture. A picture of which none of the
    texts is likely to be true teaches as little as it says.
    """
    return _graded_rows(scores, relevance) + _graded_rows(scores.T, relevance.T)


def _graded_rows(scores: Tensor, relevance: Tensor) -> Tensor:
    target = relevance / relevance.sum(1, keepdim=True).clamp(min=1)
    return -(target * log_softmax(scores, 1)).sum() / target.sum().clamp(min=1e-6)


def calibrated_scale(blocks: list[tuple[Tensor, Tensor]]) -> float:
    """The T in [0.1, 200] at which softmax(T · scores) gives held-out true pairs the highest likelihood.

    `blocks` are (scores, same) of the size of a training batch. This is temperature scaling. A teacher trained
    with a hinge only knows order: at T = 1 its softmax over a batch is almost uniform and teaches a student nothing.
    """
    candidates = torch.logspace(-1, 2.301, 67)  # steps of 12 %
    costs = torch.stack([torch.stack([infonce(t * s.float(), same) for s, same in blocks]).sum() for t in candidates])
    return round(float(candidates[costs.argmin()]), 4)
