"""Snow: a paler picture behind flakes that fall, and the same flakes upside down.

Flakes follow the law of the original but are drawn anew.
"""

import torch
from torch import Generator, Tensor

from mjp.evaluation.robustness.filters import trail, uniform, zoomed
from mjp.evaluation.robustness.strengths import Strengths

# mean and deviation of the flakes, their size, threshold, half length and deviation of the trail, share of colour
STRENGTHS = Strengths(
    small=(
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    large=(
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
)


def corrupt(
    x: Tensor,
    generator: Generator,
    mean: float,
    deviation: float,
    size: float,
    threshold: float,
    radius: float,
    sigma: float,
    colour: float,
) -> Tensor:
    flakes = mean + deviation * torch.randn(1, *x.shape[1:], generator=generator)
    flakes = zoomed(flakes, torch.tensor([size]))[0]
    flakes = flakes.masked_fill(flakes < threshold, 0.0).clamp(0, 1)
    flakes = trail(flakes, radius, sigma, uniform(generator, -135, -45))
    pale = torch.maximum(x, 1.5 * _grey(x) + 0.5)
    return colour * x + (1 - colour) * pale + flakes + flakes.flip(1, 2)


def _grey(x: Tensor) -> Tensor:
    """(1, H, W) luma."""
    return (torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1) * x).sum(0, keepdim=True)
