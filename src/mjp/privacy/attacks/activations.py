"""Activations attack: the first MLP tells apart what linear equations cannot. One picture, MJP or withheld positions.

The closed forms (subspace, span) leave every patch open along a common span, x = a + z F: under MJP the differences of
the masked patches. That is where attacks that are linear in the first layer end. But the update also holds the gradient
of the second layer of the first MLP, whose rows span the activations of all tokens,

    ∂L/∂W₂ = Σ_t g_t h_tᵀ,   h_t = GELU(W₁ LN(z_t + attention_t))

and activations are not linear in the pixels: they stay in this span for the true z only. That gives 4D − T equations
for the q unknowns of every patch, of real-valued pixels as of integer ones. The solver is server/bend.py.

Under MJP the masked patches follow as a set, since every masked slot has the same equations; their borders say in which
order they belong. What this attack cannot know is what MJP guarantees: that order.
"""

import math

import torch
from torch import Tensor

from mjp.privacy.attacks import span, subspace
from mjp.privacy.server.bend import Bend
from mjp.privacy.server.integers import snap, to_levels
from mjp.privacy.server.linear import OpenSystem, solve_open
from mjp.privacy.server.needs import require
from mjp.privacy.server.puzzle_solver import solve
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME = "activations"
TITLE = "activations of the first MLP"
HELP = "solves what subspace and span leave open: the activations of the first MLP span its gradient"
NEEDS = ("one", "step", "projection", "mlp", "norm")
MIN_GAIN = 300.0  # times better explained: below, the descent has stuck, and only whole grey levels are believed


def run(view: View) -> Reconstruction:
    system, mask = open_system(view)
    start = solve_open(view, system.origin, system.free)
    patches, gain = solve_system(view, system, mask, start)
    details = {"condition": system.condition, "masked": int(mask.sum()), "gain": gain}
    if gain >= MIN_GAIN:
        patches, _ = snap(view, patches)
        return view.reconstruction(put_back(view, patches, mask), **details, open_dimensions=0)
    patches, whole = snap(view, patches)
    patches = torch.where((whole & ~mask).unsqueeze(1), patches, start)
    return view.reconstruction(patches, **details, open_dimensions=len(system.free))


def open_system(view: View) -> tuple[OpenSystem, Tensor]:
    """What the linear equations leave open, and (N,) the masked patches."""
    require(view, *NEEDS)
    if "pos_embed" in view.gradients:
        if not bool(view.mask.any()):
            raise Refused("the position gradient shows no masked patch: the direct attack leaves nothing open")
        return subspace.open_system(view), view.mask
    return span.open_system(view)


def solve_system(view: View, system: OpenSystem, mask: Tensor, start: Tensor) -> tuple[Tensor, float]:
    """(N, P) patches, masked ones in any order, and how many times better they explain ∂L/∂W₂ than the start."""
    if len(system.free) == 0:
        return start, math.inf
    bend = Bend(view, system, mask)
    patches = bend.run(start)
    return patches, bend.unexplained(start) / bend.unexplained(patches)


def put_back(view: View, patches: Tensor, mask: Tensor) -> Tensor:
    """Reorder the masked patches so that their borders fit, whatever order they come in.

    Equations give them as a set, in an order that hangs on the last bits of the update. Sorted first, the search starts
    from the same place every time.
    """
    if int(mask.sum()) < 2 or view.patch[0] != view.patch[1]:
        return patches
    levels = to_levels(view, patches[mask]).round().tolist()
    patches = patches.clone()
    patches[mask] = patches[mask][sorted(range(len(levels)), key=levels.__getitem__)]
    generator = torch.Generator().manual_seed(view.effort.seed)
    picture = view.picture(patches).clamp(0, 1).float()
    order = solve(picture, view.patch[0], mask, generator=generator, rounds=10).order
    return patches[order]
