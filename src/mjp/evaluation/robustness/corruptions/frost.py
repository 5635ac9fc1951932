"""Frost on a window. The ice is drawn here; the original overlays photographs of ice."""

import torch
from torch import Generator, Tensor

from mjp.evaluation.robustness.filters import plasma, trail, uniform
from mjp.evaluation.robustness.strengths import Strengths

# share of the picture, share of the ice
STRENGTHS = Strengths(
    small=((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    large=((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
)


def corrupt(x: Tensor, generator: Generator, picture: float, ice: float) -> Tensor:
    height, width = x.shape[1:]
    return picture * x + ice * ice_texture(height, width, generator)


def ice_texture(height: int, width: int, generator: Generator) -> Tensor:
    """(3, H, W) window frost, drawn: bright ridges of fractal clouds, crossed by needles, bluish where it is thin."""
    ridges = torch.zeros(height, width)
    for _ in range(3):
        ridges = torch.maximum(ridges, 1 - (2 * plasma(height, width, 1.35, generator) - 1).abs())
    needles = torch.zeros(1, height, width)
    for _ in range(4):
        points = (torch.rand(1, height, width, generator=generator) > 0.97).float()
        length = max(height, width) / 16
        needles += trail(points, length, length, uniform(generator, 0, 360))
    cover = plasma(height, width, 1.6, generator)
    thickness = (ridges**4 * (0.35 + 0.65 * cover) + 1.2 * needles[0] * cover).clamp(0, 1)
    tint = torch.tensor([0.85, 0.95, 1.0]).view(3, 1, 1)
    return 0.25 * tint**2 + 0.75 * thickness * tint ** (1 - thickness)
