"""Networks with as many patches as dimensions or more, where real-valued equations do not determine the patches.

LayerNorm makes the gradients of tokens sum to zero, so of D dimensions D − 1 count: with N ≥ D patches some directions
of every pixel column stay open, and what MJP masks hides behind the patches that are not masked. Pictures of 8 bits
close both holes: server/columns.py and server/hidden.py.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mjp.privacy.server.columns import Columns
from mjp.privacy.server.cosets import Cosets
from mjp.privacy.server.hidden import uncover
from mjp.privacy.server.integers import normalisation, reduce_lattice, to_patches
from mjp.privacy.server.linear import OpenSystem
from mjp.privacy.server.view import View

ROUNDING = 2.0  # noise of sums over their relative rounding errors
SINGLE = 2.0**-23  # of float32, which pixels often are before they are normalised, whatever the gradients are
ATTEMPTS = (1.0, 4.0, 16.0)  # times that noise


def is_crowded(view: View) -> bool:
    """Whether there are too few dimensions to determine every patch by linear equations."""
    return len(view.table) >= len(view.weight)


class LevelEquations(NamedTuple):
    """∂L/∂W in grey levels = Kᵀ A + what masked patches add beyond one of them."""

    mixing: Tensor  # K (n, D): gradients of the unmasked patches and, if some are masked, ∂L/∂E_unk
    mixed: Tensor  # (D, P)
    target: Tensor  # (n, P) levels near which A is expected
    noises: tuple[float, ...]  # deviations of the numbers of `mixed` to try


def level_equations(view: View, answer: Tensor) -> LevelEquations:
    """`answer` (N, P) levels."""
    mask = view.mask
    mixing, target = view.positions[~mask], answer[~mask]
    if bool(mask.any()):
        mixing = torch.cat([mixing, view.unknown.unsqueeze(0)])
        target = torch.cat([target, answer[mask].mean(0, keepdim=True)])
    mean, std = (255 * numbers for numbers in normalisation(view))  # (P,)
    mixed = view.projection * std + torch.outer(mixing.sum(0), mean)
    scale = ROUNDING * float(mixed.square().mean().sqrt())
    noises = tuple(scale * max(view.resolution, SINGLE) * factor for factor in ATTEMPTS)
    if view.resolution < SINGLE:
        noises = (scale * view.resolution, *noises)
    return LevelEquations(mixing, mixed, target, noises)


def round_columns(view: View, answer: Tensor) -> tuple[Tensor, Tensor]:
    """(N, P) levels, and (N,) which patches are whole, where nothing is masked. Unsolved columns keep the answer."""
    mixing, mixed, target, noises = level_equations(view, answer)
    for noise in noises:
        points, solved = Columns(mixing, noise).solve(mixed, target)
        solved &= ((points >= 0) & (points <= 255)).all(0)
        if bool(solved.all()):
            break
    return torch.where(solved, points, answer), torch.full_like(view.mask, bool(solved.all()))


def uncover_cosets(view: View, answer: Tensor) -> tuple[OpenSystem, Cosets] | None:
    """What one update says of every patch although some are masked: equations, and integer points; None if noise hides
    it.
    """
    mask = view.mask
    mixing, mixed, target, noises = level_equations(view, answer)
    pixels = torch.arange(mixed.shape[1]).view(3, *view.patch)
    pairs = torch.stack([pixels[:, :, :-1].flatten(), pixels[:, :, 1:].flatten()])
    for noise in noises:
        mixture = uncover(mixing, mixed, int(mask.sum()) - 1, pairs, target=target, noise=noise)
        if mixture is not None:
            break
    else:
        return None
    rows = torch.full_like(mask, len(mixing) - 1, dtype=torch.long)  # masked patches: the last row
    rows[~mask] = torch.arange(len(mixing) - 1)
    points, basis = mixture.points[rows], mixture.points[len(mixing) :]
    if len(basis):
        basis = reduce_lattice(basis @ basis.T) @ basis
    scale = 255 * normalisation(view)[1]
    free = torch.linalg.qr((basis / scale).T)[0].T
    system = OpenSystem(to_patches(view, points), free, torch.zeros_like(points[:, 0]), _condition(mixture.mixing))
    return system, Cosets(points, basis, torch.ones_like(mask), mask)


def _condition(mixing: Tensor) -> float:
    values = torch.linalg.svdvals(mixing)
    return float(values[0] / values[values > 1e-7 * values[0]].min())
