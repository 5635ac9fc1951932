"""Span attack: needs no gradient of a position embedding. One picture, first block as timm builds it (pre-norm).

The rows of ∂L/∂W span the patches:           x_i = a_i B,  B (N, P)
The rows of ∂L/∂W_qkv span the normalised tokens S, and LayerNorm is linear up to a scale s_i, so for every i

    Q (γ ⊙ C(W B ᵀa_i + b + E_i)) = 0          Q projects off S and off β, C centres

linear in a_i, with public E_i: the values of the position table tell the patches apart although its gradient is
withheld. Unique when N + T ≤ D − 1 (T tokens). The prior decides the directions that stay open (in a narrow network;
the differences of patches that share E_unk) and what noise hides.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mjp.privacy.server.linear import OpenSystem, PatchModes, solve_spanned, solve_until_plausible
from mjp.privacy.server.needs import require
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME = "span"
TITLE = "span attack (no position gradients)"
HELP = "needs no position gradient: the public values of the position table tell the patches apart"
NEEDS = ("one", "projection", "qkv", "values", "norm")


class Equations(NamedTuple):
    """mixing aᵢ = targetᵢ for x_i = aᵢ·basis."""

    basis: Tensor  # B (N, P)
    mixing: Tensor  # (D, N)
    target: Tensor  # (D, N): one column for each patch
    mask: Tensor  # (N,)
    open: int  # dimensions that the equations leave open
    noise: float  # deviation of the targets


def run(view: View) -> Reconstruction:
    basis, mixing, target, mask, open_, noise = _equations(view)
    scale = float(target.square().mean().sqrt())

    def solve(deviation: float) -> Tensor:
        return solve_spanned(view, basis, mixing, target, deviation * scale)

    patches, _ = solve_until_plausible(view, solve, noise / scale)
    values = torch.linalg.svdvals(mixing)
    condition = float(values[0] / values[len(basis) - open_ - 1])
    return view.reconstruction(patches, condition=condition, open_dimensions=open_, masked=int(mask.sum()))


def open_system(view: View) -> tuple[OpenSystem, Tensor]:
    """Every patch up to what its equations leave open, and (N,) the masked patches."""
    basis, mixing, target, mask, open_, noise = _equations(view)
    left, values, right = torch.linalg.svd(mixing, full_matrices=False)
    # what moves a patch by less than the noise does is open too
    rank = min(len(basis) - open_, int((values * PatchModes(view).variances.max().sqrt() > noise).sum()))
    known = (left[:, :rank].T @ target) / values[:rank].unsqueeze(1)  # (rank, N)
    origin = known.T @ right[:rank] @ basis
    deviation = origin.new_full((len(origin),), noise / float(values[rank - 1]))
    return OpenSystem(origin, right[rank:] @ basis, deviation, float(values[0] / values[rank - 1])), mask


def _equations(view: View) -> Equations:
    require(view, *NEEDS)
    cells, width = view.table.shape
    tokens = cells + view.vit.num_prefix_tokens
    if tokens >= width - 1:
        raise Refused(f"{tokens} tokens fill all {width} dimensions of the first layer: nothing is left to solve with")
    basis = _row_space(view.projection, cells)
    off = _off(view, tokens)
    mixing = off(view.weight @ basis.T)
    mask = _mask(view, mixing, off)
    positions = view.table.clone()
    if view.model.unknown is not None:
        positions[mask] = view.model.unknown.detach().double()
    target = -off((view.bias + positions).T)
    open_ = max(cells + tokens - (width - 1), int(mask.sum()) - 1, 0)
    noise = _noise(view, mixing, target, rank=cells - open_, equations=width - 1 - tokens)
    return Equations(basis, mixing, target, mask, open_, noise)


def _row_space(matrix: Tensor, rank: int) -> Tensor:
    """Orthonormal rows that span the rows of a matrix of this rank (at most)."""
    rows: Tensor = torch.linalg.svd(matrix, full_matrices=False)[2]
    return rows[: min(rank, len(rows))]


def _off(view: View, tokens: int) -> Any:
    """v ↦ Q (γ ⊙ C v) for columns v (D, n)."""
    beta = view.vit.blocks[0].norm1.bias.detach().double()
    span = _row_space(view.gradients["blocks.0.attn.qkv.weight"], tokens)  # (T, D)
    if bool(beta.any()):
        rest = beta - span.T @ (span @ beta)
        span = torch.cat([span, (rest / rest.norm()).unsqueeze(0)])

    def off(columns: Tensor) -> Tensor:
        scaled = _scaled(view, columns)
        return scaled - span.T @ (span @ scaled)

    return off


def _scaled(view: View, columns: Tensor) -> Tensor:
    """γ ⊙ C v: LayerNorm without its division and β."""
    gamma = view.vit.blocks[0].norm1.weight.detach().double()
    return gamma.unsqueeze(1) * (columns - columns.mean(0))


def _mask(view: View, mixing: Tensor, off: Any) -> Tensor:
    """Which patches share E_unk: by the zero rows of ∂L/∂E, or, where that is withheld, by which equations hold.

    With E_unk they hold for every patch as soon as one is masked (its own a solves them), and for none otherwise. With
    E_i they hold for the unmasked patches only.
    """
    if view.model.unknown is None or "pos_embed" in view.gradients:
        return view.mask
    left = torch.linalg.svd(mixing, full_matrices=False)[0]

    def misfit(positions: Tensor) -> Tensor:
        target = off((view.bias + positions).T)
        rounding = 1e-9 * target.norm(dim=0)
        return (target - left @ (left.T @ target)).norm(dim=0) + rounding

    return misfit(view.table) > 2 * misfit(view.model.unknown.detach().double().expand_as(view.table))


def _noise(view: View, mixing: Tensor, target: Tensor, *, rank: int, equations: int) -> float:
    """Deviation of the right-hand sides: what surplus equations leave unexplained or, without those, the tilt of S."""
    floor = view.resolution * float(target.square().mean().sqrt())
    if equations <= rank:
        return max(_tilt(view), floor)
    left = torch.linalg.svd(mixing, full_matrices=False)[0][:, :rank]
    excess = target - left @ (left.T @ target)
    return max(float(excess.norm() / ((equations - rank) * target.shape[1]) ** 0.5), floor)


def _tilt(view: View) -> float:
    """How far tokens deviate from the span S of a noisy ∂L/∂W_qkv.

    Beyond its rank T the singular values σ are noise alone, of e per entry. It tilts direction k of S by e / σ_k, which
    moves a token in proportion to its component along k; the tokens of the mean picture are a good measure of that.
    """
    gradient = view.gradients["blocks.0.attn.qkv.weight"]
    tokens = len(view.table) + view.vit.num_prefix_tokens
    _, values, rows = torch.linalg.svd(gradient, full_matrices=False)
    spare = (gradient.shape[0] - tokens) * (gradient.shape[1] - tokens)
    noise = values[tokens:].norm() / spare**0.5
    typical = view.weight @ view.patches(view.prior.mean).T + (view.bias + view.table).T  # (D, N)
    along = rows[:tokens] @ _scaled(view, typical)  # (T, N)
    off = noise * along / values[:tokens].clamp(min=1e-300).unsqueeze(1)
    return float(off.square().sum(0).mean().sqrt())
