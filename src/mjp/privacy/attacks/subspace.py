"""Mask-aware subspace attack on MJP. One picture.

Masked rows of ∂L/∂E are exactly zero, so the mask is public; ∂L/∂E_unk = Σ_masked g_m. With u unmasked, m masked:

    ∂L/∂W = G_uᵀ X_u + G_mᵀ X_m,   of G_m only the sum of its rows is public

    projected off span(G_u) its rows span X_m:       X_m = Z_m Q,  Q (k, P)
    the sum of the g_m, projected alike, gives c:    Z_m c = 1
    and for the unmasked:                            X_u = (G_uᵀ)⁺ ∂L/∂W + Z_u Q,   Z_u c = −(G_uᵀ)⁺ ∂L/∂E_unk

So every patch is determined up to the k − 1 differences of the masked patches: k = 1 is exact, and the prior decides
the rest. No attack that is linear in the first layer can narrow those dimensions down for real-valued pixels; 8-bit
pixels are integers, which the lattice attack uses.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from mjp.privacy.server.linear import OpenSystem, solve_open
from mjp.privacy.server.needs import require
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME = "subspace"
TITLE = "mask-aware subspace attack"
HELP = "made for MJP: reads the mask off the gradient, recovers patches up to differences of masked ones"
NEEDS = ("one", "step", "projection", "positions", "unknown")
Columns = Callable[[Tensor], Tensor]


def run(view: View) -> Reconstruction:
    system = open_system(view)
    patches = solve_open(view, system.origin, system.free)
    count = int(view.mask.sum())
    noise = float(system.noise.median())
    details = {"condition": system.condition, "open_dimensions": count - 1, "masked": count, "noise": noise}
    return view.reconstruction(patches, **details)


def open_system(view: View) -> OpenSystem:
    """Every patch up to the differences of the masked ones."""
    require(view, *NEEDS)
    mask = view.mask
    cells = len(view.table)
    count = int(mask.sum())
    if count == 0:
        raise Refused("no row of the position gradient is zero: nothing was masked, use the direct attack")
    if not bool(view.unknown.any()):
        raise Refused("the update lacks the gradient of E_unk, or it is zero, but it holds the sum of the masked rows")
    if cells >= len(view.weight):  # LayerNorm takes one dimension away
        raise Refused(
            f"{cells} patches and only {len(view.weight)} equations for each pixel: what is masked hides behind the "
            "others; lattice finds it for pictures of 8 bits"
        )
    mixing = view.positions[~mask]  # G_u (N − k, D)
    solve, condition = _pseudo_inverse(mixing)
    off = _projector(mixing)
    rest = off(view.projection)  # (D, P) = (projected G_mᵀ) X_m
    values, rows = torch.linalg.svd(rest, full_matrices=False)[1:]
    basis = rows[:count]  # Q (k, P)
    along = torch.linalg.lstsq(rest @ basis.T, off(view.unknown.unsqueeze(1))).solution[:, 0]  # c (k,)
    origin = view.weight.new_zeros(cells, basis.shape[1])
    level = view.weight.new_ones(cells)
    origin[~mask] = solve(view.projection)
    level[~mask] = -solve(view.unknown.unsqueeze(1))[:, 0]
    origin = origin + torch.outer(level, along @ basis) / along.square().sum()
    free = torch.linalg.svd(along.unsqueeze(0))[2][1:] @ basis  # (k − 1, P): rows z Q with z·c = 0
    noise = _noise(view, values, solve)
    return OpenSystem(origin, free, noise, condition)


def _noise(view: View, values: Tensor, solve: Columns) -> Tensor:
    """(N,) how far the equations of each patch are off, from what ∂L/∂W has beyond its rank.

    An error e in every number of ∂L/∂W moves an unmasked patch by e times its row of (G_uᵀ)⁺, and tilts the span of the
    masked patches: direction j by e / σ_j, which moves a patch as far as it reaches along j.
    """
    count = int(view.mask.sum())
    width, pixels = view.projection.shape
    spare = (width - len(view.table)) * (pixels - count)
    floor = view.resolution / 100 * float(view.projection.square().mean().sqrt())
    error = max(float(values[count:].norm()) / spare**0.5 if spare > 0 else 0.0, floor)
    noise = view.weight.new_full((len(view.table),), float(1 / values[:count].median()))
    rows = solve(torch.eye(width, dtype=view.weight.dtype))  # (N − k, D)
    noise[~view.mask] = (rows.square().sum(1) + noise[~view.mask].square()).sqrt()
    return error * noise


def _pseudo_inverse(mixing: Tensor) -> tuple[Columns, float]:
    """v ↦ (Gᵀ)⁺ v, and the condition number of G."""
    left, values, right = torch.linalg.svd(mixing, full_matrices=False)

    def solve(columns: Tensor) -> Tensor:
        return left @ ((right @ columns) / values.unsqueeze(1))

    return solve, float(values[0] / values[-1]) if len(values) else 1.0


def _projector(mixing: Tensor) -> Columns:
    """v ↦ v without its part in the row space of G."""
    right = torch.linalg.svd(mixing, full_matrices=False)[2]
    return lambda columns: columns - right.T @ (right @ columns)
