"""Dither: uniform noise of exactly one grey level, after which the pixels of a picture are not integers any more.

An 8-bit pixel l plus noise u, uniform from −½ to ½, is uniform modulo 1 whatever l is: what a closed form leaves open
modulo 1 says nothing about l.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mjp.pictures.tensors import per_channel

LEVELS = 255


def dither(images: Tensor, std: Sequence[float], generators: Sequence[torch.Generator]) -> Tensor:
    """Normalised (B, C, H, W) with noise of one grey level, drawn on the CPU from the generator of each picture."""
    noise = torch.stack([torch.rand(images.shape[1:], generator=g, dtype=torch.float64) for g in generators]) - 0.5
    return images + (noise / LEVELS).to(images) / per_channel(std, images)
