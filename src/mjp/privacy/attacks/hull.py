"""Hull attack: what a model gives away whose tokens carry no position (rotary, no-pe). One picture.

Without a position table nothing in the first layer tells patches apart, so the server gets them as a set:

    ∂L/∂W = Gᵀ X and ∂L/∂b = Gᵀ 1      X = Z Q, Q the row space of ∂L/∂W;  Z c = 1, c from ∂L/∂b
    so all patches are in one affine subspace of N − 1 dimensions, their hull, whatever the mask

Pixels are whole numbers: the integer points of the hull that could be patches are a short list (server/integers.py).
The first LayerNorm divides by a deviation, which is not linear: in the row space of [∂L/∂W_qkv, ∂L/∂b_qkv] are the
normalised tokens of true patches (with a 1 behind them), and of no other point of the hull. As far as rounding lets the
two be told apart, the set is exact. Its order is not in the gradient where MJP hides it: borders tell it
(server/puzzle_solver.py), and where nothing is shuffled, swaps that bring the gradient of the picture nearer.
"""

from functools import reduce
from itertools import combinations

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from mjp.pictures.patches import patchify, unpatchify
from mjp.privacy.attacks.lattice import check_installed
from mjp.privacy.attacks.subspace import OpenSystem
from mjp.privacy.combination import parse
from mjp.privacy.server.cosets import MAX_OPEN, find_cosets
from mjp.privacy.server.integers import nearest_points, reduce_lattice, to_levels, to_patches
from mjp.privacy.server.linear import solve_open
from mjp.privacy.server.needs import require
from mjp.privacy.server.puzzle_solver import solve
from mjp.privacy.server.self_check import match
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME = "hull"
TITLE = "set of patches (models without a position table)"
HELP = "for rotary and position-free models: the set of patches, put in order by borders and gradient"
NEEDS = ("one", "step", "projection", "qkv", "norm")
BEAM = 4096  # integer points of the hull that are looked at
PASSES = 2  # over all pairs of patches that might be swapped


def run(view: View) -> Reconstruction:
    require(view, *NEEDS)
    system = patch_hull(view)
    picture = solve_open(view, system.origin, system.free)
    details = {"condition": system.condition, "open_dimensions": len(system.free)}
    if len(system.free) > MAX_OPEN:
        return view.reconstruction(picture, **details, recovered=0)
    check_installed()
    patches, gap = patch_set(view, system)
    if len(patches) < len(view.table):
        return view.reconstruction(picture, **details, recovered=0)
    return view.reconstruction(_ordered(view, patches), **details, recovered=len(patches), gap=gap)


def patch_hull(view: View) -> OpenSystem:
    """The affine subspace of all patches: every patch is origin + Z·free for some Z."""
    if bool(view.table.any()):
        raise Refused("the model adds position embeddings to its patches: use direct, span or subspace")
    gradient = view.gradients.get("patch_embed.proj.bias")
    if gradient is None or not bool(gradient.any()):
        raise Refused("the update lacks the gradient of patch_embed.proj.bias, or it is zero")
    cells = len(view.table)
    width, pixels = view.projection.shape
    if cells > min(width, pixels):
        raise Refused(f"{cells} patches fill all {min(width, pixels)} dimensions of a patch: their span says nothing")
    values, rows = torch.linalg.svd(view.projection, full_matrices=False)[1:]
    basis = rows[:cells]  # Q (N, P)
    along = torch.linalg.lstsq(view.projection @ basis.T, gradient.unsqueeze(1)).solution[:, 0]  # c (N,)
    origin = (along @ basis) / along.square().sum()
    free = torch.linalg.svd(along.unsqueeze(0))[2][1:] @ basis  # (N − 1, P)
    spare = max((width - cells) * (pixels - cells), 1)
    floor = view.resolution / 100 * float(view.projection.square().mean().sqrt())
    error = max(float(values[cells:].norm()) / spare**0.5, floor)
    noise = view.weight.new_full((cells,), error / float(values[:cells].median()))
    return OpenSystem(origin.expand(cells, -1), free, noise, float(values[0] / values[cells - 1]))


def patch_set(view: View, system: OpenSystem) -> tuple[Tensor, float]:
    """(N, P) normalised patches in no order, those points of the hull that the first LayerNorm confirms best.

    Also the ratio of the first misfit that is left out to the last that is in: far above 1, the set is certain.
    """
    cosets = find_cosets(view, system, to_levels(view, system.origin))
    if len(cosets.basis) < len(system.free) or not bool(cosets.solved.any()):
        return system.origin[:0], 1.0
    covariances = [factor.contiguous() for factor in view.prior.patch_covariances(view.patch)]
    metric = torch.linalg.inv(reduce(torch.kron, covariances)) / 255**2
    basis = reduce_lattice(cosets.basis @ metric @ cosets.basis.T) @ cosets.basis
    target = patchify(view.prior.mean.double(), view.patch).mean(0, keepdim=True) * 255
    levels = nearest_points(cosets.points[:1], basis, metric, target, BEAM)[0]
    patches = to_patches(view, levels[((levels >= 0) & (levels <= 255)).all(1)])
    misfits, order = _misfit(view, patches).sort()
    count = len(view.table)
    gap = float(misfits[count] / misfits[count - 1]) if len(misfits) > count else 1.0
    return patches[order[:count]], gap


def _misfit(view: View, patches: Tensor) -> Tensor:
    """(n,) how far the normalised tokens of candidates are from the span of those of the picture."""
    norm = view.vit.blocks[0].norm1
    gradient = view.gradients["blocks.0.attn.qkv.weight"]
    bias = view.gradients.get("blocks.0.attn.qkv.bias")
    both = gradient if bias is None else torch.cat([gradient, bias.unsqueeze(1)], 1)
    span = torch.linalg.svd(both, full_matrices=False)[2][: len(view.table) + view.vit.num_prefix_tokens]
    weight, shift = norm.weight.detach().double(), norm.bias.detach().double()
    tokens = layer_norm(patches @ view.weight.T + view.bias, weight.shape, weight, shift, norm.eps)
    if bias is not None:
        tokens = torch.cat([tokens, tokens.new_ones(len(tokens), 1)], 1)
    return (tokens - tokens @ span.T @ span).norm(dim=1) / tokens.norm(dim=1)


def _ordered(view: View, patches: Tensor) -> Tensor:
    """(N, P) the patches by how their borders fit; by the gradient of the picture where nothing is shuffled."""
    generator = torch.Generator().manual_seed(view.effort.seed)
    loose = unpatchify(patches, view.grid, view.patch).float()
    if view.patch[0] == view.patch[1]:
        patches = patches[solve(loose, view.patch[0], generator=generator).order]
    if parse(view.info.defence).jigsaw is not None:
        return patches  # the mask is not public, and what it hides is not in the gradient
    best = match(view, view.picture(patches).unsqueeze(0))
    for _ in range(PASSES):
        before = best
        for first, second in combinations(range(len(patches)), 2):
            swapped = patches.clone()
            swapped[[first, second]] = patches[[second, first]]
            fit = match(view, view.picture(swapped).unsqueeze(0))
            if fit > best:
                best, patches = fit, swapped
        if best == before:
            break
    return patches
