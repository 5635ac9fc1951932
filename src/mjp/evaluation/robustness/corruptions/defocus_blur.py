"""Out of focus: every point becomes a disk."""

from torch import Generator, Tensor

from mjp.evaluation.robustness.filters import convolve, disk
from mjp.evaluation.robustness.strengths import Strengths

# radius of the disk, softness of its edge
STRENGTHS = Strengths(
    small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    large=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
)


def corrupt(x: Tensor, _: Generator, radius: float, softness: float) -> Tensor:
    return convolve(x, disk(radius, softness))
