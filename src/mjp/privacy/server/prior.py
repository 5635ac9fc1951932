"""What an attacker knows before seeing a gradient: what pictures look like in general.

A Gaussian prior with the mean of other, public pictures, and a covariance of three factors: colours (3×3), rows and
columns, the latter two autoregressive chains in which pixels k apart are correlated by ρᵏ. Its inverse couples only
direct neighbours, so it is a smoothness prior, within patches and across their borders, whose strength is measured.

The mean picture itself is the data-free guess: an attack is worth what it gains over that.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from mjp.common.errors import InputError


@dataclass(frozen=True)
class Prior:
    mean: Tensor  # (3, H, W) in [0, 1], float64
    colour: Tensor  # (3, 3) covariance of the colours of a pixel
    rho: float  # correlation of neighbouring pixels
    limits: tuple[float, float]  # contrast and roughness that nine of ten public pictures stay below

    def precision(self, picture: Tensor) -> Tensor:
        """(3, H, W) times the inverse covariance: only neighbours meet."""
        rows, columns = (_chain(n, self.rho).to(picture) for n in picture.shape[-2:])
        return torch.einsum("cd,dhw->chw", self._inverse_colour.to(picture), rows @ picture @ columns)

    @cached_property
    def _inverse_colour(self) -> Tensor:
        inverse: Tensor = torch.linalg.inv(self.colour)
        return inverse

    def patch_factors(self, patch: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """Colours, rows and columns: the factors of the inverse covariance within one inner patch."""
        return self._inverse_colour, _inner_chain(patch[0], self.rho), _inner_chain(patch[1], self.rho)

    def patch_covariances(self, patch: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """The factors of the covariance of one patch."""
        return self.colour, *(torch.linalg.inv(_chain(side, self.rho)) for side in patch)

    def oddity(self, picture: Tensor) -> tuple[float, float]:
        """Contrast and roughness: squared distance from the mean, per pixel, plain and in units of the covariance."""
        rest = picture - self.mean.to(picture)
        return float(rest.square().mean()), float((rest * self.precision(rest)).mean())

    def plausible(self, picture: Tensor) -> bool:
        return all(value <= limit for value, limit in zip(self.oddity(picture), self.limits, strict=True))

    def smoothed(self, picture: Tensor) -> Tensor:
        """A (3, H, W) picture without the noise that makes it rougher than public pictures: a Wiener filter.

        The noise is assumed to be white and as weak as possible; a picture that is smooth enough is left alone.
        """
        chains = (torch.linalg.inv(_chain(side, self.rho)) for side in picture.shape[-2:])
        factors = [torch.linalg.eigh(matrix.to(picture)) for matrix in (self.colour, *chains)]
        bases = [basis for _, basis in factors]
        variances = torch.einsum(
            "a,b,c->abc", *(values for values, _ in factors)
        )  # of each mode of a picture, (3, H, W)
        mean = self.mean.to(picture)
        modes = torch.einsum("ia,jb,kc,ijk->abc", *bases, picture - mean)

        def filtered(noise: float) -> Tensor:
            return modes * variances / (variances + noise)

        if _roughness(filtered(0.0), variances) <= self.limits[1]:
            return picture
        low = 0.0
        high = self.variance * 1e4
        for _ in range(60):  # bisection
            middle = (low + high) / 2
            rough = _roughness(filtered(middle), variances) > self.limits[1]
            low, high = (middle, high) if rough else (low, middle)
        return mean + torch.einsum("ia,jb,kc,abc->ijk", *bases, filtered(high))

    @cached_property
    def variance(self) -> float:
        """Mean squared deviation of a pixel from the mean picture."""
        return float(self.colour.diagonal().mean())


def fit_prior(pictures: Tensor, size: tuple[int, int] | None = None) -> Prior:
    """Measure the prior on (n, 3, h, w) public pictures in [0, 1]; `size` resizes what was measured.

    A chain sampled more finely keeps its shape: neighbours s times closer are correlated by ρ^(1/s).
    """
    if pictures.ndim != 4 or len(pictures) < 2:
        raise InputError("a prior needs at least two public pictures of one size")
    pictures = pictures.double()
    mean = pictures.mean(0)
    rest = pictures - mean
    colour = torch.einsum("nchw,ndhw->cd", rest, rest) / (rest.numel() / 3)
    colour = colour + 1e-6 * torch.eye(3, dtype=colour.dtype)
    variance = rest.square().mean()
    across = (rest[..., 1:] * rest[..., :-1]).mean() / variance
    down = (rest[..., 1:, :] * rest[..., :-1, :]).mean() / variance
    rho = float(((across + down) / 2).clamp(0.01, 0.999))
    if size is not None and size != tuple(mean.shape[-2:]):
        rho = rho ** (mean.shape[-2] / size[0])
        mean = interpolate(mean.unsqueeze(0), size, mode="bicubic", antialias=True)[0].clamp(0, 1)
    prior = Prior(mean, colour, rho, (0.0, 0.0))
    if pictures.shape[-2:] != mean.shape[-2:]:
        pictures = interpolate(pictures, mean.shape[-2:], mode="bicubic", antialias=True)
    contrast, roughness = torch.tensor([prior.oddity(picture) for picture in pictures]).quantile(0.9, 0).tolist()
    return replace(prior, limits=(contrast, roughness))


def _roughness(modes: Tensor, variances: Tensor) -> float:
    return float((modes.square() / variances).mean())


@lru_cache(maxsize=64)  # the solvers ask for the same one hundreds of times
def _chain(length: int, rho: float) -> Tensor:
    """Inverse of the correlation matrix ρ^|i−j|: tridiagonal."""
    matrix = _inner_chain(length, rho)
    matrix[0, 0] = matrix[-1, -1] = 1 / (1 - rho**2)
    return matrix if length > 1 else torch.ones(1, 1, dtype=torch.float64)


def _inner_chain(length: int, rho: float) -> Tensor:
    """The same for a stretch that continues at both ends."""
    diagonal = torch.full((length,), (1 + rho**2) / (1 - rho**2), dtype=torch.float64)
    beside = torch.full((length - 1,), -rho / (1 - rho**2), dtype=torch.float64)
    return torch.diag(diagonal) + torch.diag(beside, 1) + torch.diag(beside, -1)
