"""The integer points that linear equations leave of every patch: p + Λ (see attacks/lattice.py)."""

from typing import NamedTuple

import torch
from torch import Tensor

from mjp.privacy.server.integers import (
    MAX_TOLERANCE,
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
ATTEMPTS = ((24, 2.0), (24, 10.0), (80, 0.6), (80, 2.0), (80, 10.0))
ROUGHNESS = 20.0  # levels that patches may have in any direction: some are far rougher than the prior expects
WIDTH = 16  # integer points of the reduced pixels that are tried for every patch
MAX_OPEN = 40  # dimensions: beyond, the reduction takes minutes


class Cosets(NamedTuple):
    """Integer points of every patch: points + Z·basis, where `solved`."""

    points: Tensor  # (N, P) levels
    basis: Tensor  # (q, P)
    solved: Tensor  # (N,) bool
    decoys: Tensor  # (N,) bool: masked patches are in the cosets of each other, so only their borders tell them apart


def find_cosets(view: View, system: OpenSystem, answer: Tensor, decoys: Tensor | None = None) -> Cosets:
    """The integer points that satisfy the equations; nothing is solved where the reduction does not find Λ.

    `decoys` (N,): by default the masked patches.
    """
    decoys = view.mask if decoys is None else decoys
    scale = 255 * view.weight.new_tensor(view.info.std).repeat_interleave(view.patch[0] * view.patch[1])  # (P,)
    count = len(system.free)
    nothing = Cosets(answer.round(), answer.new_zeros(0, len(scale)), torch.zeros_like(decoys), decoys)
    if count == 0:
        return round_all(to_levels(view, system.origin))
    if count > MAX_OPEN:
        return nothing
    free = torch.linalg.qr((system.free * scale).T)[0].T  # (q, P) in levels
    origin = to_levels(view, system.origin)
    noise = (system.noise * scale.mean()).clamp(min=MIN_NOISE)  # (N,) levels
    tolerance = (DEVIATIONS * noise).clamp(MIN_TOLERANCE, MAX_TOLERANCE)
    covariance = 255**2 * kronecker(view.prior.patch_covariances(view.patch))
    covariance = covariance + ROUGHNESS**2 * torch.eye(len(scale), dtype=covariance.dtype)
    typical = float(noise.median())
    best = nothing
    attempts = []
    for more, factor in ATTEMPTS:
        pixels = choose_pixels(free, min(2 * count + more, len(scale)))
        reduced = reduce_open(free, covariance, factor * typical, pixels)
        basis = integer_basis(reduced, free, float(tolerance.max()))
        for rows in (free, _sharpened(free, basis)) if len(basis) else (free,):
            points, error = integer_points(reduced, origin, rows, answer, WIDTH, tolerance)
            attempts.append(Cosets(points, basis[:0] if rows is free else basis, error < tolerance, decoys))
            if _worth(attempts[-1]) >= _worth(best):
                best = attempts[-1]
        if len(best.basis) == count and bool(best.solved.all()):
            break
    return _completed(best, attempts)


def _sharpened(free: Tensor, basis: Tensor) -> Tensor:
    """(q, P) span F without its noise along certain vectors of Λ: with wrong ones hardly a patch is solved."""
    exact = torch.linalg.qr(basis.T)[0].T
    rest = free - (free @ exact.T) @ exact
    return torch.cat([exact, torch.linalg.svd(rest, full_matrices=False)[2][: len(free) - len(exact)]])


def _completed(best: Cosets, attempts: list[Cosets]) -> Cosets:
    """Points of patches that only another attempt solved."""
    points, solved = best.points, best.solved
    for other in attempts:
        points = torch.where((~solved & other.solved).unsqueeze(1), other.points, points)
        solved = solved | other.solved
    return best._replace(points=points, solved=solved)


def _worth(cosets: Cosets) -> float:
    """Patches that came out integer; a tenth more with Λ, which lets the prior choose among the integer points."""
    return float(cosets.solved.sum()) * (1 + 0.01 * min(len(cosets.basis), 10))


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
