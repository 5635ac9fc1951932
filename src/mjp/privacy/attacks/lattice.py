"""Lattice attack: pixels are whole numbers. One picture of 8 bits.

The closed forms leave every patch open in q real dimensions, x = a + z F (subspace: q = k − 1 for k masked patches;
direct and span: rounding errors). In grey levels l = 255 (x·std + mean) is an integer vector, and

    Z^P ∩ (a + span F) = p + Λ,   Λ = Z^P ∩ span F, a lattice of rank q: integer combinations of masked differences

so a handful of candidates is left where there was a continuum. Λ and a point p of every patch come from lattice
reduction, patch by patch: what is certain is subtracted from the update (server/peeling.py). Which point of p + Λ it
is, two things decide (server/choice.py): the prior, given the neighbouring patches, with small differences between
neighbouring pixels, which in pictures are sparse; and the first LayerNorm (server/norm_check.py), where float32 leaves
its span. A patch counts as recovered only if all its pixels come out integer, within 0 … 255, and the prior does not
expect a smaller error from the answer of the closed form, which the other patches keep. In small networks the
activations of the first MLP then solve for all patches together, from there.

With as many patches as dimensions or more (server/crowded.py) linear equations do not even give a and F. Integers do:
one reduction over the patches solves every pixel of a plain network, and of a masked one after a second reduction has
found which combinations of pixels hold nothing of the masked patches.
"""

import torch
from torch import Tensor

from mjp.pictures.patches import patchify
from mjp.privacy.attacks import activations, direct, span, subspace
from mjp.privacy.server.bend import Bend
from mjp.privacy.server.choice import choose_points, near
from mjp.privacy.server.cosets import MAX_OPEN, Cosets, round_all
from mjp.privacy.server.crowded import is_crowded, round_columns, uncover_cosets
from mjp.privacy.server.integers import can_reduce, snap, to_levels, to_patches
from mjp.privacy.server.linear import OpenSystem, solve_open
from mjp.privacy.server.needs import NEEDS as ALL_NEEDS
from mjp.privacy.server.needs import require
from mjp.privacy.server.norm_check import find_norm_check
from mjp.privacy.server.peeling import peel_cosets
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME = "lattice"
TITLE = "integer pixels (lattice reduction)"
HELP = "subspace, direct or span, then uses that 8-bit pixels are whole numbers; needs mjp[lattice]"
NEEDS = ("one", "projection")
MAX_PATCHES = 100  # beyond, the joint steps on the activations take many minutes: that attack runs by itself
TURNS = 3  # of the activations and the choice of points, each from the other's answer
MAX_DISTANCE = 3.0  # levels (rms) between the answer of the activations and an integer point that it stands for


def run(view: View) -> Reconstruction:
    require(view, *NEEDS)
    check_installed()
    if view.model.unknown is not None and "pos_embed" in view.gradients and bool(view.mask.any()):
        return _uncovered(view) if is_crowded(view) else _behind_subspace(view)
    base = (direct if "pos_embed" in view.gradients else span).run(view)
    answer = patchify(base.pictures[0], view.patch) * 255
    if "pos_embed" in view.gradients and is_crowded(view):
        levels, exact = round_columns(view, answer)
    else:
        levels, exact = choose_points(view, round_all(answer), answer)
    return view.reconstruction(to_patches(view, levels), **base.details, integer_patches=int(exact.sum()))


def _behind_subspace(view: View) -> Reconstruction:
    system = subspace.open_system(view)
    start = solve_open(view, system.origin, system.free)
    answer = to_levels(view, start)
    cosets = peel_cosets(view, answer)
    check = find_norm_check(view, view.mask)
    choice = choose_points(view, cosets, answer, check=check)
    details = {"condition": system.condition, "open_dimensions": len(system.free), "masked": int(view.mask.sum())}
    bend = _activations(view, system)
    for _ in range(TURNS):
        if bend is None:
            break
        patches = bend.run(to_patches(view, choice.levels))
        if bend.unexplained(start) >= activations.MIN_GAIN * bend.unexplained(patches):
            patches, count = _solved(view, cosets, patches)
            return view.reconstruction(patches, **{**details, "open_dimensions": 0}, integer_patches=count)
        last = choice
        choice = choose_points(view, cosets, answer, check=check, hint=to_levels(view, patches))
        if int(choice.exact.sum()) <= int(last.exact.sum()):
            break
    return view.reconstruction(to_patches(view, choice.levels), **details, integer_patches=int(choice.exact.sum()))


def _uncovered(view: View) -> Reconstruction:
    """Where linear equations alone say nothing of the masked patches."""
    require(view, *subspace.NEEDS)
    masked = int(view.mask.sum())
    crowd = f"{len(view.table)} patches, {masked} of them masked, and only {len(view.weight)} equations for each pixel"
    if masked > MAX_OPEN:
        reason = (
            f"beyond {MAX_OPEN} masked ones the reduction takes minutes and is not tried; several updates need none"
        )
        raise Refused(f"{crowd}: {reason}")
    found = uncover_cosets(view, to_levels(view, view.patches(view.prior.mean)))
    if found is None:
        raise Refused(f"{crowd}: noise, or pixels that are not of 8 bits, hide what integers would tell")
    system, cosets = found
    answer = to_levels(view, solve_open(view, system.origin, system.free))
    choice = choose_points(view, cosets, answer, check=find_norm_check(view, view.mask))
    details = {"condition": system.condition, "open_dimensions": len(system.free), "masked": masked}
    return view.reconstruction(to_patches(view, choice.levels), **details, integer_patches=int(choice.exact.sum()))


def _activations(view: View, system: OpenSystem) -> Bend | None:
    """The equations of the first MLP, if the update holds them and there is something left to solve."""
    present = all(ALL_NEEDS[name].present(view) for name in activations.NEEDS)
    small = len(view.table) <= MAX_PATCHES
    return Bend(view, system, view.mask) if present and small and len(system.free) else None


def _solved(view: View, cosets: Cosets, patches: Tensor) -> tuple[Tensor, int]:
    """(N, P) patches and how many are integer, where the activations of the first MLP solve the open dimensions.

    Their answer is off by a few levels at most, so the nearest integer point of a coset is the right one.
    """
    answer = to_levels(view, patches)
    points = near(cosets, torch.eye(answer.shape[1], dtype=answer.dtype), answer, 1)[:, 0]
    possible = ((points >= 0) & (points <= 255)).all(1)
    exact = cosets.solved & possible & ((points - answer).square().mean(1).sqrt() < MAX_DISTANCE)
    patches = to_patches(view, torch.where(exact.unsqueeze(1), points, answer))
    patches, whole = snap(view, patches)
    return activations.put_back(view, patches, view.mask), int(whole.sum())


def check_installed() -> None:
    if not can_reduce():
        raise Refused("the package fpylll is missing or does not load: pip install 'mjp[lattice]'")
