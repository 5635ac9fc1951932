"""Salt and pepper, on every channel for itself."""

import torch
from torch import Generator, Tensor

from mjp.evaluation.robustness.strengths import Strengths

# share of values replaced by black or white
STRENGTHS = Strengths(
    small=((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    large=((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
)


def corrupt(x: Tensor, generator: Generator, share: float) -> Tensor:
    dice = torch.rand(x.shape, generator=generator)
    return x.masked_fill(dice < share / 2, 0.0).masked_fill(dice > 1 - share / 2, 1.0)
