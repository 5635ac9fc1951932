"""The integer points that linear equations leave of every patch: p + Λ (see attacks/lattice.py)."""

from typing import NamedTuple

import torch
from torch import Tensor

from mjp.privacy.server.integers import (
    MAX_TOLERANCE,
    Reduced,
    choose_pixels,
    integer_basis,
    integer_points,
    reduce_open,
    to_levels,
)
from mjp.privacy.server.linear import OpenSystem
from mjp.privacy.server.view import View

MIN_TOLERANCE = 0.03
MIN_NOISE = 1e-4  # levels: with less, the metric of the reduction is singular in double precision
DEVIATIONS = 10  # of the estimated noise, within which an integer point satisfies the equations
# pixels that enter the reduction beyond twice the open dimensions, and the noise that it assumes over that of a typical
# patch: the span itself may be noisier than the patches
ATTEMPTS = ((24, 2.0), (24, 10.0), (80, 2.0), (80, 10.0))
MAX_OPEN = 40  # dimensions: beyond, the reduction takes minutes


class Cosets(NamedTuple):
    """Integer points of every patch: points + Z·basis, where `solved`."""

    points: Tensor  # (N, P) levels
    basis: Tensor  # (q, P)
    solved: Tensor  # (N,) bool
    decoys: Tensor  # (N,) bool: masked patches are in the cosets of each other, so only their borders tell them apart
    search: "Search | None" = None


class Search(NamedTuple):
    """The reduction that the points came from, to look for others where Λ is not known."""

    reduced: Reduced
    origin: Tensor  # (N, P) levels
    rows: Tensor  # (q, P) orthonormal: span F in levels
    tolerance: Tensor  # (N,)

    def points_near(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """(N, P) integer points that fit the equations, of those near a target, and (N,) where they do fit."""
        points, error = integer_points(self.reduced, self.origin, self.rows, target, 1)
        return points, error < self.tolerance


def find_cosets(view: View, system: OpenSystem, answer: Tensor) -> Cosets:
    """The integer points that satisfy the equations; nothing is solved where the reduction does not find Λ."""
    scale = 255 * view.weight.new_tensor(view.info.std).repeat_interleave(view.patch[0] * view.patch[1])  # (P,)
    count = len(system.free)
    nothing = Cosets(answer.round(), answer.new_zeros(0, len(scale)), torch.zeros_like(view.mask), view.mask)
    if count == 0:
        return round_all(to_levels(view, system.origin))
    if count > MAX_OPEN:
        return nothing
    free = torch.linalg.qr((system.free * scale).T)[0].T  # (q, P) in levels
    origin = to_levels(view, system.origin)
    noise = (system.noise * scale.mean()).clamp(min=MIN_NOISE)  # (N,) levels
    tolerance = (DEVIATIONS * noise).clamp(MIN_TOLERANCE, MAX_TOLERANCE)
    covariance = 255**2 * kronecker(view.prior.patch_covariances(view.patch))
    typical = float(noise.median())
    best = nothing
    for more, factor in ATTEMPTS:
        pixels = choose_pixels(free, min(2 * count + more, len(scale)))
        reduced = reduce_open(free, covariance, factor * typical, pixels)
        basis = integer_basis(reduced, free, float(tolerance.max()))
        # span F without its noise, if Λ is right: with a wrong one hardly a patch comes out integer
        spans = [free, torch.linalg.qr(basis.T)[0].T] if len(basis) == count else [free]
        for rows in spans:
            search = Search(reduced, origin, rows, tolerance)
            points, solved = search.points_near(answer)
            # part of Λ is no help: steps along it leave out those that belong to the truth
            cosets = Cosets(points, basis[:0] if rows is free else basis, solved, view.mask, search)
            if _worth(cosets) >= _worth(best):
                best = cosets
        if len(best.basis) and bool(best.solved.all()):
            break
    return best


def _worth(cosets: Cosets) -> float:
    """Patches that came out integer; a tenth more with Λ, which lets the prior choose among the integer points."""
    return float(cosets.solved.sum()) * (1.1 if len(cosets.basis) else 1.0)


def round_all(answer: Tensor) -> Cosets:
    """No dimension is open: the nearest integers, if the answer is so near to integers that it is not by chance."""
    points = answer.round()
    solved = (answer - points).square().mean(1).sqrt() < MAX_TOLERANCE
    return Cosets(points, answer.new_zeros(0, answer.shape[1]), solved, torch.zeros_like(solved))


def kronecker(factors: tuple[Tensor, ...]) -> Tensor:
    product = torch.ones(1, 1, dtype=torch.float64)
    for factor in factors:
        product = torch.kron(product, factor.contiguous())
    return product
