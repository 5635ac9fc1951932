"""Move three points of the picture at random, everything else along with them, then every pixel a little."""

import torch
from torch import Generator, Tensor

from mjp.evaluation.robustness.filters import gaussian_blur, warped
from mjp.evaluation.robustness.strengths import Strengths

# in pixels: amplitude and smoothness of the displacements, reach of the affine map (published as shares of 244 px)
STRENGTHS = Strengths(
    small=((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)),
    large=((488, 170.8, 24.4), (488, 19.52, 48.8), (12.2, 2.44, 4.88), (17.08, 2.44, 4.88), (29.28, 2.44, 4.88)),
)


def corrupt(x: Tensor, generator: Generator, amplitude: float, smoothness: float, reach: float) -> Tensor:
    height, width = x.shape[1:]
    here = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")).float()  # (2, H, W)
    shifts = 2 * torch.rand(2, height, width, generator=generator) - 1
    there = here + amplitude * gaussian_blur(shifts, smoothness, truncate=3)
    back = _random_affine(height, width, reach, generator)  # (2, 3)
    rows, columns = (back[:, :2] @ there.flatten(1) + back[:, 2:]).view(2, height, width)
    return warped(x, rows, columns)


def _random_affine(height: int, width: int, reach: float, generator: Generator) -> Tensor:
    """(2, 3) map from a (row, column) of the new picture to one of the old: three points move by up to `reach`."""
    middle, arm = torch.tensor([height // 2, width // 2]), min(height, width) // 3
    old = middle + arm * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    new = old + reach * (2 * torch.rand(3, 2, generator=generator) - 1)
    return torch.linalg.solve(torch.cat([new, torch.ones(3, 1)], 1), old).T
