"""Rounds attack: the same picture in several updates, with a new jigsaw each time.

Every round leaves other dimensions of the patches open: the differences of the patches that it masks. What is open in
all rounds shrinks with every round (about γ^R·N − 1 dimensions after R), and the order of masked patches with it, since
a patch that is unmasked once is in its place. The server links the updates of one picture by itself: the rows of ∂L/∂W
span its patches whatever the jigsaw. The equations are in server/rounds.py.

Without position gradients the equations of every round are those of span.
"""

from collections.abc import Sequence

import torch

from mjp.privacy.attacks import span
from mjp.privacy.server.certain import refine
from mjp.privacy.server.needs import require
from mjp.privacy.server.rounds import (
    LINKED,
    Equations,
    Round,
    as_round,
    equations_of,
    open_dimensions,
    open_round,
    overlap,
    solve_rounds,
)
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME = "rounds"
TITLE = "several rounds, intersected"
HELP = "several updates, linked by what they span: what every round leaves open, intersected"
NEEDS = ("one", "step", "projection", "rounds")
MISFITS = 3  # times the noise, beyond which two updates contradict each other: they are of different pictures


def run(view: View) -> Reconstruction:
    require(view, *NEEDS)
    views = linked(view)
    if len(views) == 1:
        raise Refused("none of the other updates is of the same picture")
    rounds = [read_round(one) for one in views]
    equations: Sequence[Equations] = equations_of(rounds)
    hidden = torch.stack([one.mask for one in rounds]).all(0)
    patches = solve_rounds(view, equations, hidden)
    if all("pos_embed" in one.gradients for one in views):
        patches, equations = refine(views, patches, equations, hidden)
    details = {"rounds": len(views), "open_dimensions": open_dimensions(equations), "masked": int(hidden.sum())}
    return view.reconstruction(patches, **details)


def linked(view: View) -> list[View]:
    """The view and those of the other updates that are of the same picture."""
    return [view, *(other for other in view.others if _same_picture(view, other))]


def read_round(view: View) -> Round:
    if "pos_embed" in view.gradients:
        return open_round(view)
    return as_round(*span.open_system(view))


def can_contradict(one: Round, two: Round) -> bool:
    """Whether two rounds leave so little open that those of different pictures cannot both hold."""
    return len(one.rows) + len(two.rows) < one.rows.shape[1]


def _same_picture(first: View, second: View) -> bool:
    """By what the rows of ∂L/∂W span; in many small patches they span everything, and the equations themselves tell."""
    if first.info.size != second.info.size or first.patch != second.patch:
        return False
    if len(first.table) < first.projection.shape[1]:
        return overlap(first, second) > LINKED
    one, two = read_round(first), read_round(second)
    if not can_contradict(one, two):
        return True
    both = ~(one.mask | two.mask)
    rows = torch.linalg.qr(torch.cat([one.rows, two.rows]).T)[0].T
    rest = (one.origin - two.origin)[both]
    rest = rest - (rest @ rows.T) @ rows
    misfit = rest.square().mean(1).sqrt().median()
    return float(misfit) < MISFITS * (one.noise + two.noise)
