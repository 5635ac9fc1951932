"""The mean of the picture and ever closer views of its middle."""

import torch
from torch import Generator, Tensor

from mjp.evaluation.robustness.filters import zoomed
from mjp.evaluation.robustness.strengths import Strengths

# largest magnification, number of magnifications
STRENGTHS = Strengths(
    small=((1.05, 6), (1.1, 11), (1.15, 16), (1.2, 21), (1.25, 26)),
    large=((1.1, 11), (1.15, 16), (1.2, 11), (1.24, 13), (1.3, 11)),
)


def corrupt(x: Tensor, _: Generator, largest: float, number: float) -> Tensor:
    views = zoomed(x, torch.linspace(1, largest, round(number)))
    return (x + views.sum(0)) / (len(views) + 1)
