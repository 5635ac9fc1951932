"""Patches that are certain help the others: they are subtracted from all updates, and the rest is solved again.

Certain are patches that come out in whole grey levels and that no update contradicts. Where dimensions are open, wrong
integer points may be among them, which spoil the equations of all others: so the patches that the prior expects least
are left out where that makes more of the others whole.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mjp.privacy.server.integers import snap, to_levels
from mjp.privacy.server.linear import PatchModes, precision, solve_open
from mjp.privacy.server.rounds import Certain, Equations, equations_of, intersect, open_round, solve_rounds, subtract
from mjp.privacy.server.view import View

MIN_EXCESS = 10.0  # of a singular value over the median one, which is noise
MIN_ALIGNED = 0.9  # share of the gradient of a patch that is in what other patches leave
MAX_TURNS = 6
SHARES = (1.0, 0.5, 0.25)  # of the certain patches
ENOUGH = 0.5  # of all patches


def refine(
    views: Sequence[View], patches: Tensor, equations: Sequence[Equations], hidden: Tensor
) -> tuple[Tensor, Sequence[Equations]]:
    """(N, P) patches, solved again with those that are certain as long as that makes more of them certain, and the
    equations of the last solution.
    """
    certain = _certain(views, patches, hidden)
    for _ in range(MAX_TURNS):
        count = int(certain.rows.sum())
        if count in (0, len(patches)):
            break
        for part in (trusted(views, certain), certain):
            system = _equations(views, part)
            attempt = torch.where(part.rows.unsqueeze(1), part.patches, solve_rounds(views[0], system, hidden))
            after = _certain(views, attempt, hidden)
            if int(after.rows.sum()) > count:
                break
        else:
            break
        patches, equations, certain = attempt, system, after
    return patches, equations


def trusted(views: Sequence[View], certain: Certain) -> Certain:
    """The certain patches, or those that the prior expects most: with the right ones most of the others are whole."""
    order = _surprise(views[0], certain.patches).masked_fill(~certain.rows, torch.inf).argsort()
    attempts = []
    for share in SHARES:
        part = certain._replace(rows=torch.zeros_like(certain.rows))
        part.rows[order[: max(1, int(share * int(certain.rows.sum())))]] = True
        system = intersect(views[0], _equations(views, part))
        whole = snap(views[0], solve_open(views[0], system.origin, system.free))[1]
        attempts.append((int(whole.sum()), part))
        if float(whole.double().mean()) > ENOUGH:
            break
    return max(attempts, key=lambda attempt: attempt[0])[1]


def _equations(views: Sequence[View], certain: Certain) -> Sequence[Equations]:
    return equations_of([open_round(view, certain) for view in views])


def _surprise(view: View, patches: Tensor) -> Tensor:
    """(N,) how far each patch is from what the prior expects of it, given the others."""
    modes = PatchModes(view)
    pull = modes.to(precision(view, patches - view.patches(view.prior.mean)))
    return (pull.square() / modes.values).mean(1)


def _certain(views: Sequence[View], patches: Tensor, hidden: Tensor) -> Certain:
    """Patches of whole levels that no update contradicts; those that are never unmasked cannot be contradicted."""
    patches, whole = snap(views[0], patches)
    levels = to_levels(views[0], patches)
    possible = ((levels > -0.5) & (levels < 255.5)).all(1)
    certain = Certain(patches, whole & possible & ~hidden)
    contradicted = torch.stack([suspects(view, certain) for view in views]).any(0)
    return certain._replace(rows=certain.rows & ~contradicted)


def suspects(view: View, certain: Certain) -> Tensor:
    """(N,) which of the certain patches this update contradicts.

    A wrong patch leaves its gradient g_i in the columns of what is left, and those of few patches are left there.
    """
    unknown, mixed, _ = subtract(view, certain)
    right = torch.linalg.svd(unknown, full_matrices=False)[2]
    columns, values, _ = torch.linalg.svd(mixed - right.T @ (right @ mixed), full_matrices=False)
    floor = MIN_EXCESS * max(float(values.median()), view.resolution * float(view.projection.norm()))
    columns = columns[:, values > floor]
    gradients = view.positions - (view.positions @ right.T) @ right
    share = (gradients @ columns).square().sum(1) / gradients.square().sum(1)
    return certain.rows & ~view.mask & (share > MIN_ALIGNED)
