"""A batch of pictures: what linear equations say of all of them, and the integer points that these leave.

With P = ∂L/∂E = Σ_b G_b (N, D) and X_b (N, P) the patches of picture b,

    ∂L/∂W = Σ_b G_bᵀ X_b = Pᵀ X_1 + Σ_{b>1} G_bᵀ (X_b − X_1)

Off the rows of P only the second term is left. Its rows span K, the (B − 1)·N differences between patches in one place,
as long as B·N < D. And (Pᵀ)⁺ ∂L/∂W is X_b off K, for every b: all B patches of place i are in a_i + K.

In grey levels patches are integer: of a_i + K a coset p_i + Λ is left, Λ = Z^P ∩ K. The first LayerNorm tells its true
points from the others. The rows of [∂L/∂W_qkv, ∂L/∂b_qkv] span the normalised tokens of all pictures, each with a 1
behind it; every point of a_i + K is in that span up to its scale, but to normalise is to divide by the deviation of the
token, which is convex in the pixels, and only true points have the deviation that the 1 asks for.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from mjp.privacy.server.first_block import WEIGHT, FirstBlock, has_plain_mlp
from mjp.privacy.server.integers import (
    MAX_TOLERANCE,
    choose_pixels,
    integer_basis,
    integer_points,
    nearest_points,
    reduce_lattice,
    reduce_open,
)
from mjp.privacy.server.linear import OpenSystem
from mjp.privacy.server.view import Refused, View

QKV = ("blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.bias")
MIN_NOISE = 1e-4  # levels: with less, the metric of the reduction is singular in double precision
MAX_OPEN = 64  # dimensions: beyond, the reduction takes minutes
ROUNDING = 4.0  # of the client's own tokens, in units of the precision of its numbers
MAX_EXCESS = 8.0  # of the misfit of a true point over what noise explains
CANDIDATES = 2**23  # pixels of all candidates, which bound the width of the search
MAX_WIDTH = 4096


class Coset(NamedTuple):
    """The integer points of place i: points[i] + Z·basis, in grey levels."""

    points: Tensor  # (N, P)
    basis: Tensor  # (q, P)


def open_system(view: View) -> OpenSystem:
    """Every place up to the differences of the patches that the pictures have there."""
    cells, width = view.positions.shape
    pixels = view.projection.shape[1]
    batch = view.info.batch
    count = (batch - 1) * cells
    if batch * cells >= width or count >= pixels:
        room = f"{width} dimensions of the tokens and {pixels} of the patches"
        raise Refused(f"{batch} pictures of {cells} patches are more than {room} can tell apart")
    left, values, right = torch.linalg.svd(view.positions, full_matrices=False)
    answers = left @ ((right @ view.projection) / values.unsqueeze(1))
    rest = view.projection - right.T @ (right @ view.projection)
    excess, rows = torch.linalg.svd(rest, full_matrices=False)[1:]
    free = rows[:count]
    spare = (width - 1 - batch * cells) * (pixels - count)
    floor = view.resolution / 100 * float(view.projection.square().mean().sqrt())
    error = max(float(excess[count:].norm()) / spare**0.5 if spare > 0 else 0.0, floor)
    noise = error * (left / values).norm(dim=1)
    return OpenSystem(answers - (answers @ free.T) @ free, free, noise, float(values[0] / values[-1]))


def find_coset(view: View, system: OpenSystem, origin: Tensor, answer: Tensor) -> Coset | None:
    """The integer points that satisfy the equations; None where the reduction does not find them in every place.

    origin, answer (N, P): points of a_i + K in levels, the second near the pictures.
    """
    count = len(system.free)
    if count > MAX_OPEN:
        return None
    scale = 255 * view.weight.new_tensor(view.info.std).repeat_interleave(view.patch[0] * view.patch[1])  # (P,)
    free = torch.linalg.qr((system.free * scale).T)[0].T
    noise = max(float(system.noise.median() * scale.mean()), MIN_NOISE)
    covariance = 255**2 * kronecker(view.prior.patch_covariances(view.patch))
    for more, factor in ((2.0, 2.0), (2.5, 2.0), (2.0, 10.0)):
        pixels = choose_pixels(free, min(int(more * count) + 24, len(scale)))
        reduced = reduce_open(free, covariance, factor * noise, pixels)
        basis = integer_basis(reduced, free, MAX_TOLERANCE)
        if len(basis) < count:
            continue
        points, error = integer_points(reduced, origin, torch.linalg.qr(basis.T)[0].T, answer, 1)
        if bool((error < MAX_TOLERANCE).all()):
            return Coset(points, basis)
    return None


def candidates(coset: Coset, metric: Tensor, target: Tensor) -> Tensor:
    """(N, n, P) points of the cosets near (N, P) targets in a metric; more of them where there are few places."""
    basis = reduce_lattice(coset.basis @ metric @ coset.basis.T) @ coset.basis
    width = min(MAX_WIDTH, CANDIDATES // target.numel())
    return nearest_points(coset.points, basis, metric, target, width)


def kronecker(factors: tuple[Tensor, ...]) -> Tensor:
    product = torch.ones(1, 1, dtype=torch.float64)
    for factor in factors:
        product = torch.kron(product, factor.contiguous())
    return product


class NormalisedTokens:
    """The span of the normalised tokens of all pictures; `usable` where the update holds it."""

    def __init__(self, view: View) -> None:
        self.view = view
        tokens = view.info.batch * len(view.table) + view.vit.num_prefix_tokens  # class tokens are all alike
        norm = view.vit.blocks[0].norm1
        self.usable = all(name in view.gradients for name in QKV) and isinstance(norm, torch.nn.LayerNorm)
        self.usable &= tokens < len(view.weight)
        if not self.usable:
            return
        gradient = torch.cat([view.gradients[QKV[0]], view.gradients[QKV[1]].unsqueeze(1)], 1)  # (3D, D + 1)
        _, values, rows = torch.linalg.svd(gradient, full_matrices=False)
        self.rows = rows[:tokens]
        self.spare = gradient.shape[1] - tokens
        noise = float(values[tokens:].norm()) / ((len(gradient) - tokens) * self.spare) ** 0.5
        self.tilts = noise / values[:tokens].clamp(min=1e-300)

    def excess(self, patches: Tensor, places: Tensor) -> Tensor:
        """(m, n) misfits of (m, n, P) normalised candidates for m places over what noise and rounding explain."""
        if not self.usable:
            return torch.zeros(patches.shape[:2], dtype=patches.dtype)
        norm = self.view.vit.blocks[0].norm1
        weight = norm.weight.detach().double()
        tokens = patches @ self.view.weight.T + (self.view.table[places] + self.view.bias).unsqueeze(1)
        tokens = layer_norm(tokens, weight.shape, weight, norm.bias.detach().double(), norm.eps)
        tokens = torch.cat([tokens, torch.ones_like(tokens[..., :1])], -1)
        along = tokens @ self.rows.T
        misfit = ((tokens - along @ self.rows).square().sum(-1) / self.spare).sqrt()
        rounding = ROUNDING * self.view.resolution * tokens.square().mean(-1).sqrt()
        return misfit / ((along * self.tilts).square().sum(-1).sqrt() + rounding)


class Activations:
    """The rows of ∂L/∂W₂ of the first MLP span the activations of all tokens, which attention ties to their picture."""

    def __init__(self, view: View) -> None:
        tokens = view.info.batch * (len(view.table) + view.vit.num_prefix_tokens)
        self.usable = has_plain_mlp(view) and WEIGHT in view.gradients and tokens < len(view.weight)
        if self.usable:
            self.block = FirstBlock(view, torch.zeros(len(view.table), dtype=torch.bool))
            self.rows = torch.linalg.svd(self.block.gradient, full_matrices=False)[2][:tokens]
            self.floor = view.resolution

    def score(self, patches: Tensor) -> float:
        """How well (B, N, P) normalised pictures fit; one token that fits is not lost among others that do not."""
        activations = self.block.bent(self.block.mixed(patches))  # (B, T, M)
        rest = activations - (activations @ self.rows.T) @ self.rows
        misfit = rest.norm(dim=-1) / activations.norm(dim=-1)
        return -float((misfit + self.floor).log().mean())
