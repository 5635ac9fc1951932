"""Shot noise: every value is a count of photons."""

import torch
from torch import Generator, Tensor

from mjp.evaluation.robustness.strengths import Strengths

# photons that a white pixel receives
STRENGTHS = Strengths(
    small=((500,), (250,), (100,), (75,), (50,)),
    large=((60,), (25,), (12,), (5,), (3,)),
)


def corrupt(x: Tensor, generator: Generator, photons: float) -> Tensor:
    return torch.poisson(x * photons, generator=generator) / photons
