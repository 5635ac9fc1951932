"""Contrast: every value moves towards the mean of its channel."""

from torch import Generator, Tensor

from mjp.evaluation.robustness.strengths import Strengths

# what remains of the distance from the mean
STRENGTHS = Strengths(
    small=((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
    large=((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
)


def corrupt(x: Tensor, _: Generator, remains: float) -> Tensor:
    mean = x.mean((1, 2), keepdim=True)
    return mean + remains * (x - mean)
