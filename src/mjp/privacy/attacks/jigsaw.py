"""Jigsaw attack: recover the patches in closed form, then put shuffled ones back by how their borders fit.

On a plain jigsaw (JP) positions are kept, so the direct attack gives every patch, in the wrong places; which ones moved
is not known, and all pieces are loose. On MJP the mask is public and only masked pieces are loose, but they are known
only as well as the subspace attack knows them.
"""

import torch

from mjp.privacy.attacks import direct, subspace
from mjp.privacy.client.defences import parse
from mjp.privacy.server.puzzle_solver import solve
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME, TITLE = "jigsaw", "closed form, then a jigsaw solver"


def run(view: View) -> Reconstruction:
    defence = parse(view.facts.defence)
    if defence.jigsaw == "none":
        raise Refused("the client shuffles nothing: there is no order to restore")
    view.require("one", "projection", "positions")
    if view.patch[0] != view.patch[1]:
        raise Refused(f"the solver is for square pieces, not {view.patch}")
    masked = view.model.unknown is not None and bool(view.mask.any())
    found = subspace.run(view) if masked else direct.run(view)
    generator = torch.Generator().manual_seed(view.effort.seed)
    mask = view.mask if masked else None
    solved = solve(found.pictures[0].float(), view.patch[0], mask, generator=generator, rounds=10)
    moved = int((solved.order != torch.arange(len(solved.order))).sum())
    return Reconstruction(solved.picture.double().unsqueeze(0), {**found.facts, "moved": moved})
