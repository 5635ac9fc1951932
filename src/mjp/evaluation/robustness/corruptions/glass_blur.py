"""Frosted glass: blur, let every pixel take the value of a random neighbour a few times, blur again.

All pixels of a round trade places at once; the original goes from pixel to pixel.
"""

import torch
from torch import Generator, Tensor

from mjp.evaluation.robustness.filters import gaussian_blur
from mjp.evaluation.robustness.strengths import Strengths

# standard deviation of the blur, reach of a pixel, rounds
STRENGTHS = Strengths(
    small=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    large=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
)


def corrupt(x: Tensor, generator: Generator, sigma: float, reach: float, rounds: float) -> Tensor:
    x, far = gaussian_blur(x, sigma), round(reach)
    height, width = x.shape[1:]
    rows, columns = torch.arange(height).unsqueeze(1), torch.arange(width)
    for _ in range(round(rounds)):
        down, right = torch.randint(-far, far, (2, height, width), generator=generator)
        x = x[:, (rows + down).clamp(0, height - 1), (columns + right).clamp(0, width - 1)]
    return gaussian_blur(x, sigma)
