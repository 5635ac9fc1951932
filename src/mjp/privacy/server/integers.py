"""Integer points of affine subspaces: what is left of real unknowns when pixels are whole numbers.

Every patch satisfies l = a + z F with z real and l ∈ Z^P (grey levels). The integer vectors within span(F) form a
lattice of rank q, so l is known up to that lattice as soon as one integer point near a + span(F) is known:

    reduce_open      Z^m for m of the pixels, reduced under the metric TᵀT/ε² + Σ⁻¹ (T: off span(F), Σ: the prior)
    integer_basis    its q shortest vectors, extended to all pixels: a basis of Z^P ∩ span(F)
    integer_points   for every patch the integer points that fit the equations best, extended to all pixels
    nearest_points   the points of a coset that are nearest to a target, by a beam search (Babai's nearest plane, wider)

The pixels beyond the m are the check: what is integer in all of them, to the precision of the equations, is no chance.
"""

import importlib
from functools import cache
from typing import Any, NamedTuple

import scipy.linalg
import torch
from torch import Tensor

from mjp.privacy.server.view import View

BITS = 30  # to which a real lattice basis is rounded, relative to its shortest entry
BLOCK = 20  # of BKZ, where dozens of pixels are reduced
BKZ_LOOPS = 3
MAX_ERROR = 0.45  # levels
MAX_TOLERANCE = 0.15  # rms distance from integers in levels; of numbers at random it is 0.29
MAX_SHARE = 0.05  # of the length of a vector of the lattice that may be noise
STEPS = (0.0, 1.0, -1.0, 2.0, -2.0)  # from the nearest integer that the beam search tries in every coordinate


class Reduced(NamedTuple):
    """A reduced basis of Z^m in a metric."""

    pixels: Tensor  # (m,) numbers of the pixels
    vectors: Tensor  # (m, m) integer rows, in the order of LLL
    metric: Tensor  # (m, m)


def reduce_lattice(metric: Tensor, block: int = 0) -> Tensor:
    """(n, n) integer rows: a basis of Z^n, reduced in a positive metric by LLL, and by BKZ with a block size."""
    root = torch.linalg.cholesky(metric).T  # metric = rootᵀ root: column j is the image of unit vector j
    return reduce_rows(root.T, float(root.diagonal().min()) / 2.0**BITS, block)


@cache
def can_reduce() -> bool:
    """Whether fpylll is there and loads: a wheel for other libraries than the system's is found and fails."""
    try:
        importlib.import_module("fpylll")
    except ImportError:
        return False
    return True


def reduce_rows(rows: Tensor, unit: float, block: int = 0) -> Tensor:
    """(n, n) integer rows: a basis of Z^n, reduced by the lengths of what it makes of (n, d) rows.

    The rows are rounded to multiples of `unit` and must stay independent.
    """
    from fpylll import BKZ, GSO, LLL, IntegerMatrix
    from fpylll.algorithms.bkz2 import BKZReduction

    scaled = (rows / unit).round()
    basis = IntegerMatrix.from_matrix([[int(value) for value in row] for row in scaled.tolist()])
    transform = IntegerMatrix.identity(len(rows))
    LLL.reduction(basis, transform)
    if block:
        BKZReduction(GSO.Mat(basis, U=transform))(BKZ.Param(block, max_loops=BKZ_LOOPS, flags=BKZ.MAX_LOOPS))
    return torch.tensor(_rows(transform, len(rows)), dtype=torch.float64)


def _rows(matrix: Any, size: int) -> list[list[int]]:
    return [[int(matrix[row, column]) for column in range(size)] for row in range(size)]


def reduce_open(free: Tensor, covariance: Tensor, noise: float, pixels: Tensor, block: int = BLOCK) -> Reduced:
    """Reduce Z^m for m pixels, so that integer vectors within span(F), F = `free` (q, P), are the short ones."""
    inside = torch.linalg.qr(free[:, pixels].T)[0]  # (m, q)
    off = torch.eye(len(pixels), dtype=free.dtype) - inside @ inside.T
    metric = off / noise**2 + torch.linalg.inv(covariance[pixels][:, pixels])
    metric = (metric + metric.T) / 2
    return Reduced(pixels, reduce_lattice(metric, block), metric)


def integer_basis(reduced: Reduced, free: Tensor, tolerance: float) -> Tensor:
    """(r, P) vectors of Z^P ∩ span(F): those of the q shortest that are integer in all pixels; a basis if r = q."""
    lengths = ((reduced.vectors @ reduced.metric) * reduced.vectors).sum(1)
    shortest = reduced.vectors[lengths.argsort()[: len(free)]]
    full, error = extend(shortest, torch.zeros_like(free[0]), free, reduced.pixels)
    size = full.square().mean(1).sqrt()  # vectors of a few ones are near to everything
    return full[(error < tolerance) & (error < MAX_SHARE * size)]


def integer_points(
    reduced: Reduced, origin: Tensor, free: Tensor, target: Tensor, width: int, tolerance: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(N, P) integer points near origin + span(F), and (N,) the errors of `extend`.

    Of `width` points near the target, the nearest whose error is within the (N,) tolerance, or else the best of all.
    """
    inside = torch.linalg.qr(free[:, reduced.pixels].T)[0]
    base = origin[:, reduced.pixels]
    start = base + (target[:, reduced.pixels] - base) @ inside @ inside.T  # satisfies the equations
    near = nearest_points(torch.zeros_like(start), reduced.vectors, reduced.metric, start, width)  # (N, width, m)
    points, errors = [], []
    for row, candidates in enumerate(near):
        full, error = extend(candidates, origin[row], free, reduced.pixels)
        fits = error < (error.min() if tolerance is None else tolerance[row])
        best = fits.int().argmax() if bool(fits.any()) else error.argmin()
        points.append(full[best])
        errors.append(error[best])
    return torch.stack(points), torch.stack(errors)


def extend(points: Tensor, origin: Tensor, free: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """(n, P) integer points near origin + span(F) of which some pixels are known, and how far from it they are (rms).

    A pixel that is off by nearly half a level could as well be another integer: the error is infinite then.
    """
    weights = torch.linalg.lstsq(free[:, pixels].T, (points - origin[pixels]).T).solution.T  # (n, q)
    full = origin + weights @ free
    whole = full.round()
    whole[:, pixels] = points
    error = (full - whole).abs()
    return whole, torch.where(error.amax(1) < MAX_ERROR, error.square().mean(1).sqrt(), torch.inf)


def to_levels(view: View, patches: Tensor) -> Tensor:
    """(..., N, P) normalised → grey levels, 0 … 255 for pictures."""
    mean, std = normalisation(view)
    return (patches * std + mean) * 255


def to_patches(view: View, levels: Tensor) -> Tensor:
    """(..., N, P) grey levels → normalised."""
    mean, std = normalisation(view)
    return (levels / 255 - mean) / std


def normalisation(view: View) -> tuple[Tensor, Tensor]:
    """(P,) mean and deviation of every pixel of a patch."""
    area = view.patch[0] * view.patch[1]
    mean, std = (view.weight.new_tensor(values).repeat_interleave(area) for values in (view.info.mean, view.info.std))
    return mean, std


def snap(view: View, patches: Tensor) -> tuple[Tensor, Tensor]:
    """(N, P) normalised patches rounded to 8 bits where they are so near to whole grey levels that it is no chance.

    Also returns (N,) where that is.
    """
    levels = to_levels(view, patches)
    whole = levels.round()
    near = (levels - whole).square().mean(1).sqrt() < MAX_TOLERANCE
    return torch.where(near.unsqueeze(1), to_patches(view, whole), patches), near


def choose_pixels(free: Tensor, count: int) -> Tensor:
    """Pixels in which span(F) is best conditioned: QR with pivoting, again and again on the pixels that are left."""
    left = torch.arange(free.shape[1])
    picked: list[Tensor] = []
    while sum(map(len, picked)) < count and len(left) >= len(free):
        pivots = scipy.linalg.qr(free[:, left].numpy(), mode="r", pivoting=True)[1][: len(free)]
        rows = torch.from_numpy(pivots).long()
        picked.append(left[rows])
        rest = torch.ones(len(left), dtype=torch.bool)
        rest[rows] = False
        left = left[rest]
    return torch.cat([*picked, left])[:count]


def nearest_points(points: Tensor, basis: Tensor, metric: Tensor, targets: Tensor, width: int) -> Tensor:
    """(N, width, P) points of points + Z·basis near the targets in a metric, the nearest first.

    points, targets (N, P); basis (q, P) integer rows, reduced in this metric; metric (P, P). A width of 1 is Babai's
    nearest plane.
    """
    root = torch.linalg.cholesky(metric).T
    frame, upper = torch.linalg.qr(root @ basis.T)  # (P, q), (q, q)
    rest = (points - targets) @ root.T @ frame  # (N, q): what the lattice has to cancel
    count = len(basis)
    members = rest.new_zeros(len(points), 1, count)  # integer coordinates of each member of the beam
    energy = rest.new_zeros(len(points), 1)
    steps = rest.new_tensor(STEPS)
    for k in range(count - 1, -1, -1):
        centre = -(rest[:, k : k + 1] + members @ upper[k]) / upper[k, k]  # (N, beam)
        whole = centre.round().unsqueeze(2) + steps  # (N, beam, steps)
        cost = energy.unsqueeze(2) + (upper[k, k] * (whole - centre.unsqueeze(2))).square()
        energy, order = cost.flatten(1).topk(min(width, cost[0].numel()), 1, largest=False, sorted=True)
        parents = order // len(steps)
        members = members.gather(1, parents.unsqueeze(2).expand(-1, -1, count)).clone()
        members[:, :, k] = whole.flatten(1).gather(1, order)
    return points.unsqueeze(1) + members @ basis
