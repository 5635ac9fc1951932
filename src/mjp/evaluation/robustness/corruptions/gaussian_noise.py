"""Gaussian noise, on every value for itself."""

import torch
from torch import Generator, Tensor

from mjp.evaluation.robustness.strengths import Strengths

# standard deviation
STRENGTHS = Strengths(
    small=((0.04,), (0.06,), (0.08,), (0.09,), (0.1,)),
    large=((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
)


def corrupt(x: Tensor, generator: Generator, deviation: float) -> Tensor:
    return x + deviation * torch.randn(x.shape, generator=generator)
