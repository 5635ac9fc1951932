"""Fog: fractal clouds over the picture. They follow the law of the original but are drawn anew."""

from torch import Generator, Tensor

from mjp.evaluation.robustness.filters import plasma
from mjp.evaluation.robustness.strengths import Strengths

# thickness, smoothness
STRENGTHS = Strengths(
    small=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    large=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
)


def corrupt(x: Tensor, generator: Generator, thickness: float, decay: float) -> Tensor:
    (height, width), brightest = x.shape[1:], x.max()
    clouds = plasma(height, width, decay, generator)
    return (x + thickness * clouds) * brightest / (brightest + thickness)
