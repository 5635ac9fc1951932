"""Motion blur in a random direction."""

from torch import Generator, Tensor

from mjp.evaluation.robustness.filters import trail, uniform
from mjp.evaluation.robustness.strengths import Strengths

# half the length of the trail, its standard deviation
STRENGTHS = Strengths(
    small=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    large=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
)


def corrupt(x: Tensor, generator: Generator, radius: float, sigma: float) -> Tensor:
    return trail(x, radius, sigma, uniform(generator, -45, 45))
