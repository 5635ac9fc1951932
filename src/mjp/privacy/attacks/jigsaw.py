"""Jigsaw attack: recover the patches in closed form, then put shuffled ones back by how their borders fit.

On a plain jigsaw (JP) positions are kept, so the direct attack recovers every patch, in the wrong places; nothing says
which ones moved, so all pieces are loose. On MJP the mask is public and only masked pieces are loose, but they are only
as good as the subspace attack makes them.
"""

import torch

from mjp.privacy.attacks import direct, subspace
from mjp.privacy.combination import parse
from mjp.privacy.server.needs import require
from mjp.privacy.server.puzzle_solver import solve
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME = "jigsaw"
TITLE = "closed form, then a jigsaw solver"
HELP = "direct or subspace, then puts shuffled pieces back by how their borders fit"
NEEDS = ("one", "projection", "positions")


def run(view: View) -> Reconstruction:
    if parse(view.info.defence).jigsaw is None:
        raise Refused("the client shuffles nothing: there is no order to restore")
    require(view, *NEEDS)
    if view.patch[0] != view.patch[1]:
        raise Refused(f"the solver is for square pieces, not {view.patch}")
    masked = view.model.unknown is not None and bool(view.mask.any())
    recovered = subspace.run(view) if masked else direct.run(view)
    generator = torch.Generator().manual_seed(view.effort.seed)
    mask = view.mask if masked else None
    solved = solve(recovered.pictures[0].float(), view.patch[0], mask, generator=generator, rounds=10)
    moved = int((solved.order != torch.arange(len(solved.order))).sum())
    return Reconstruction(solved.picture.double().unsqueeze(0), {**recovered.details, "moved": moved})
