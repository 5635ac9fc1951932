"""Brightness: raise the value of HSV. Hue and saturation stay if the three channels grow by the same factor."""

import torch
from torch import Generator, Tensor

from mjp.evaluation.robustness.strengths import Strengths

# added to the value of HSV
STRENGTHS = Strengths(
    small=((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    large=((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
)


def corrupt(x: Tensor, _: Generator, more: float) -> Tensor:
    value = x.amax(0, keepdim=True)
    raised = (value + more).clamp(max=1)
    return torch.where(value > 0, x * raised / value.clamp(min=1e-6), raised)
