"""Integer columns: the pixels of all patches where a network mixes more patches than it has dimensions.

In grey levels ∂L/∂W = Kᵀ A with K (n, D) public and A (n, P) integer. Every column of A, one pixel in all patches, has
D equations for n unknowns. Where n > D they leave n − D real directions of a column open, and noise hides some more;
but only one point of what they leave is an integer vector. It is the problem of integers.py with the patches in the
place of the pixels: one reduction serves all columns, and the patches beyond the reduced ones are the check.
"""

import math
from functools import cached_property

import torch
from torch import Tensor

from mjp.privacy.server.integers import MAX_TOLERANCE, Reduced, choose_pixels, integer_points, reduce_open

MIN_VALUE = 1e-7  # of singular values, relative: LayerNorm makes all gradients of tokens sum to zero over the width
MAX_SPREAD = 3e-3  # levels of noise along a direction that the equations decide
MIN_NOISE = 1e-4  # levels: with less, the metric of a reduction is singular in double precision
MIN_TOLERANCE = 0.03  # levels
DEVIATIONS = 10  # of the noise, within which an integer vector satisfies the equations
SIZE = 200.0  # levels that unknowns may have along directions that are open
MORE = 40  # unknowns that enter the reduction beyond twice the open directions
WIDTH = 4  # integer points that are tried for every column
WIDE = (2 * math.pi * math.e) ** 0.5  # deviations that a Gaussian is wide
MARGIN = 30.0  # nats by which points that fit by chance are improbable


class Columns:
    """K = `mixing` (n, D); `noise`: deviation of the numbers of ∂L/∂W in levels."""

    def __init__(self, mixing: Tensor, noise: float) -> None:
        self.mixing = mixing
        self.noise = noise
        left, values, right = torch.linalg.svd(mixing)  # (n, n), (min,), (D, D)
        self.rank = int((values > MIN_VALUE * values[:1]).sum())
        certain = int((values > max(noise / MAX_SPREAD, MIN_VALUE * float(values[0]))).sum())
        self.inverse = left[:, :certain] / values[:certain] @ right[:certain]  # (n, D)
        self.open = left[:, certain:].T  # (q, n) orthonormal
        self.spread = noise * self.inverse.norm(dim=1)  # (n,) levels

    @cached_property
    def _reduced(self) -> Reduced:
        count = len(self.open)
        chosen = choose_pixels(self.open, min(2 * count + MORE, len(self.mixing)))
        covariance = SIZE**2 * torch.eye(len(self.mixing), dtype=self.mixing.dtype)
        return reduce_open(self.open, covariance, max(float(self.spread.median()), MIN_NOISE), chosen, block=0)

    def solve(self, mixed: Tensor, target: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(n, c) integer columns with Kᵀ A = `mixed` (D, c), near a target (n, c), and (c,) which of them hold.

        `scale` (c,): the noise of each column over the usual.
        """
        origin = (self.inverse @ mixed).T  # (c, n)
        typical = float(self.spread.square().mean().sqrt())
        scale = torch.ones_like(origin[:, 0]) if scale is None else scale
        tolerance = (DEVIATIONS * typical * scale).clamp(MIN_TOLERANCE, MAX_TOLERANCE)
        if len(self.open) == 0:
            points = origin.round()
            error = (points - origin).square().mean(1).sqrt()
        else:
            points, error = integer_points(self._reduced, origin, self.open, target.T, WIDTH, tolerance)
        return points.T, (error < tolerance) & (self._surprise(error) > MARGIN)

    def _surprise(self, error: Tensor) -> Tensor:
        """(c,) nats by which it is improbable that some integer vector has so small an error (rms) by chance.

        Along the open directions vectors have `SIZE` to choose from; in every other one a chance fits as often as a
        Gaussian as wide as the error fills the space between two integers.
        """
        count = len(self.open)
        width = (WIDE * error.clamp(min=MIN_NOISE)).clamp(max=1)
        return -(len(self.mixing) - count) * width.log() - count * math.log(WIDE * SIZE)
