"""What the corruptions are made of: blurs, magnification, warps and fractal clouds, on (C, H, W) pictures.

Blurs mirror the picture at its edges, as often as needed, so that a kernel may be larger than a picture.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import conv2d, grid_sample, interpolate, pad


def mirrored(index: Tensor, size: int) -> Tensor:
    """Indices outside 0 .. size − 1 folded back: … 1 0 | 0 1 2 … size−1 | size−1 …"""
    folded = index % (2 * size)
    return torch.minimum(folded, 2 * size - 1 - folded)


@lru_cache(maxsize=128)
def blur_matrix(size: int, sigma: float, radius: int) -> Tensor:
    """(size, size) Gaussian blur of a column: row i holds the weights of the values that make up value i."""
    offsets = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (offsets.double() / max(sigma, 1e-6)) ** 2)
    weights = (weights / weights.sum()).float().expand(size, -1)
    sources = mirrored(torch.arange(size).unsqueeze(1) + offsets, size)
    return torch.zeros(size, size).scatter_add_(1, sources, weights)


def gaussian_blur(picture: Tensor, sigma: float, *, truncate: float = 4.0) -> Tensor:
    radius = int(truncate * sigma + 0.5)
    rows, columns = (blur_matrix(size, sigma, radius) for size in picture.shape[-2:])
    return rows @ picture @ columns.T


def disk(radius: float, softness: float) -> Tensor:
    """A filled circle of that radius as a kernel, its edge softened over one pixel (two, if it is large)."""
    soft = 1 if radius <= 8 else 2
    reach = math.ceil(radius) + soft
    line = torch.arange(-reach, reach + 1) ** 2
    filled = ((line.unsqueeze(1) + line) <= radius**2).float()
    soften = blur_matrix(2 * reach + 1, softness, soft)
    return soften @ (filled / filled.sum()) @ soften.T


def convolve(picture: Tensor, kernel: Tensor) -> Tensor:
    """Every channel with the same square kernel of odd side, symmetric as a disk is."""
    reach = kernel.shape[0] // 2
    rows, columns = (mirrored(torch.arange(-reach, size + reach), size) for size in picture.shape[-2:])
    padded = picture[:, rows.unsqueeze(1), columns]
    return conv2d(padded.unsqueeze(1), kernel[None, None]).squeeze(1)


def trail(picture: Tensor, radius: float, sigma: float, degrees: float) -> Tensor:
    """Motion blur: the mean of 2·radius + 1 copies, each one pixel further in one direction, Gaussian weights."""
    steps = torch.arange(2 * math.ceil(radius) + 1)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    angle = math.radians(degrees)
    along = torch.stack([steps * math.sin(angle), steps * math.cos(angle)], 1).round().int().tolist()
    height, width = picture.shape[-2:]
    reach = len(steps)
    padded = pad(picture, (reach, reach, reach, reach), mode="replicate")
    blurred = torch.zeros_like(picture)
    for weight, (down, right) in zip((weights / weights.sum()).tolist(), along, strict=True):
        top, left = reach + down, reach + right
        blurred += weight * padded[:, top : top + height, left : left + width]
    return blurred


def zoomed(picture: Tensor, factors: Tensor) -> Tensor:
    """(n, C, H, W): the middle of the picture, magnified by each of n factors."""
    height, width = picture.shape[-2:]
    y, x = torch.linspace(-1, 1, height).unsqueeze(1), torch.linspace(-1, 1, width)
    middle = torch.stack([x.expand(height, -1), y.expand(-1, width)], -1)  # (H, W, 2)
    grid = middle / factors.view(-1, 1, 1, 1)
    return grid_sample(picture.expand(len(factors), -1, -1, -1), grid, align_corners=True)


def warped(picture: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The picture read at (H, W) fractional rows and columns; beyond its edges it is mirrored."""
    height, width = picture.shape[-2:]
    grid = torch.stack([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], -1)
    return grid_sample(picture[None], grid[None], padding_mode="reflection", align_corners=True)[0]


def plasma(height: int, width: int, decay: float, generator: torch.Generator) -> Tensor:
    """(H, W) clouds in [0, 1]: noise of ever finer grain, each octave decay² times weaker than the one before."""
    side = max(height, width)
    clouds = torch.zeros(side, side)
    for octave in range(1, int(math.log2(side)) + 1):
        grain = torch.rand(1, 1, 2**octave + 1, 2**octave + 1, generator=generator)
        clouds += decay ** (-2 * octave) * interpolate(grain, (side, side), mode="bicubic", align_corners=True)[0, 0]
    clouds = clouds[:height, :width]
    return (clouds - clouds.min()) / (clouds.max() - clouds.min())


def uniform(generator: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * torch.rand((), generator=generator).item()
