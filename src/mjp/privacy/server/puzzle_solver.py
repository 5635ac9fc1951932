"""A jigsaw solver: put the shuffled patches of a picture back by how well their borders fit.

An attack may recover what the masked patches show, but not where they belong. The solver searches for an order of the
pieces in which the borders between neighbours fit; patches whose place is public (the unmasked ones) stay there.

1. Border costs. The step across a border should look like the steps beside it: their mean and covariance over the
   colours say how surprising it is (Gallagher 2012). A heavy-tailed law keeps true edges from dominating.
2. Grow. Repeatedly place the piece with the clearest fit beside those already placed. "Clear" is the ratio of a cost
   to that of the best rival, so an unmistakable fit comes before one that any piece of sky would have.
3. Reassign. Slots without a common border do not affect each other, so the best order of the pieces in a set of such
   slots is an assignment problem, solved exactly. Random sets take turns; the total cost never rises.
4. Tear down what is not joined by borders that are each other's best fit, grow again, keep the better picture.

With no fixed piece the frame is unknown too: pieces then grow on a torus, which is cut where it fits least.
Up to `BRUTE_FORCE` pieces, or when no two free slots touch, the best order is found exactly instead.
"""

from itertools import permutations
from typing import NamedTuple

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from mjp.common.errors import InputError
from mjp.method.plan import check_generator
from mjp.pictures.patches import image_grid, patchify, unpatchify

BRUTE_FORCE = 7
FLOOR = 1e-5  # variance of a step: what rounding to 1/255 leaves even in a flat area
TAIL = 3.0  # degrees of freedom of the law of a step
RIGHT, LEFT, BELOW, ABOVE = range(4)
OPPOSITE = [LEFT, RIGHT, ABOVE, BELOW]


class Solution(NamedTuple):
    picture: Tensor  # (3, H, W) with its pieces moved
    order: Tensor  # (N,) int64: slot i receives the piece of slot order[i], as in Plan.permutation
    cost: float  # of all borders; comparable between orders of one picture only


class Puzzle(NamedTuple):
    """Tables with one entry more than there are pieces and slots: number N stands for none of them."""

    costs: Tensor  # (4, N + 1, N + 1): how badly piece b fits to the right of, left of, below, above piece a
    neighbours: Tensor  # (N, 4) slot to the right of, left of, below, above each slot
    free: Tensor  # (K,) slots whose pieces may move
    grid: tuple[int, int]

    @property
    def floating(self) -> bool:
        return len(self.free) == len(self.neighbours)


@torch.no_grad()
def solve(
    picture: Tensor, patch: int, mask: Tensor | None = None, *, generator: torch.Generator, rounds: int = 40
) -> Solution:
    """Reorder the pieces of a (3, H, W) picture in the slots of a (N,) mask (None: all) so that their borders fit.

    The search runs on the CPU and takes seconds for 196 pieces; `rounds` is how often it tears down and grows again.
    """
    check_generator(generator)
    puzzle = _puzzle(picture, patch, mask)
    order = torch.arange(len(puzzle.neighbours))
    if not torch.isin(puzzle.neighbours[puzzle.free], puzzle.free).any():
        order = _reassigned(order, puzzle.free, puzzle)
    elif len(puzzle.free) <= BRUTE_FORCE:
        order = _best_of_all(order, puzzle)
    else:
        order = _search(puzzle, generator, rounds)
    moved = _pieces(picture, patch)[order.to(picture.device)]
    return Solution(_picture(moved, puzzle.grid), order.to(picture.device), total_cost(order, puzzle).item())


def border_costs(pieces: Tensor) -> Tensor:
    """(4, N, N) from (N, P, P, 3): how badly piece b fits to the right of, left of, below and above piece a."""
    right = _surprise(pieces) + _surprise(pieces.flip(2)).T
    below = _surprise(pieces.transpose(1, 2)) + _surprise(pieces.transpose(1, 2).flip(2)).T
    return torch.stack([right, right.T, below, below.T])


def _surprise(pieces: Tensor) -> Tensor:
    """(N, N): how unlikely the step from a's last column to b's first column is, going by the steps before it in a."""
    edge, first = pieces[:, :, -1], pieces[:, :, 0]  # (N, P, 3)
    steps = edge - pieces[:, :, -2]
    mean = steps.mean(1, keepdim=True)
    spread = (steps - mean).mT @ (steps - mean) / steps.shape[1] + FLOOR * torch.eye(3, device=edge.device)
    whiten = torch.linalg.inv(torch.linalg.cholesky(spread)).mT.unsqueeze(1)  # (N, 1, 3, 3), one for each a
    distance = first @ whiten - (edge + mean).unsqueeze(1) @ whiten  # (N, N, P, 3)
    return TAIL * torch.log1p(distance.square().sum(-1) / TAIL).sum(-1)


def total_cost(order: Tensor, puzzle: Puzzle) -> Tensor:
    """Cost of all borders of one (N,) order, or of each of (M, N)."""
    beside = F.pad(order, (0, 1), value=order.shape[-1])[..., puzzle.neighbours]  # (..., N, 4)
    right, below = (puzzle.costs[d][order, beside[..., d]].sum(-1) for d in (RIGHT, BELOW))  # each border once
    return right + below


def _best_of_all(order: Tensor, puzzle: Puzzle) -> Tensor:
    """Try every order of the free pieces."""
    choices = puzzle.free[torch.tensor(list(permutations(range(len(puzzle.free)))))]  # (K!, K)
    orders = order.repeat(len(choices), 1)
    orders[:, puzzle.free] = choices
    return orders[total_cost(orders, puzzle).argmin()]


def _search(puzzle: Puzzle, generator: torch.Generator, rounds: int) -> Tensor:
    """Grow, reassign, tear down and grow again; the best order seen."""
    ratios = _ratios(puzzle)
    empty = torch.arange(len(puzzle.neighbours)).index_fill(0, puzzle.free, len(puzzle.neighbours))
    best = _settle(_grow(empty, ratios, puzzle, generator), puzzle, generator)
    for _ in range(rounds):
        # some rounds change little, some much
        doubt = 0.6 * float(torch.rand((), generator=generator))
        noise = 0.3 * torch.rand((), generator=generator) * torch.randn(ratios.shape, generator=generator)
        remains = _tear_down(best, ratios, puzzle, doubt, generator)
        order = _settle(_grow(remains, ratios * noise.exp(), puzzle, generator), puzzle, generator)
        if total_cost(order, puzzle) < total_cost(best, puzzle):
            best = order
    return best


def _ratios(puzzle: Puzzle) -> Tensor:
    """Each cost over that of the best rival on either side: below 1 where two pieces are each other's best fit."""
    cells = len(puzzle.neighbours)
    costs = puzzle.costs[:, :cells, :cells].clone()
    fixed = torch.ones(cells, dtype=torch.bool).index_fill(0, puzzle.free, False)
    costs[:, torch.eye(cells, dtype=torch.bool)] = torch.inf  # a piece is not its own neighbour
    costs[:, fixed.unsqueeze(1) & fixed] = torch.inf  # fixed pieces compete for nothing
    rival = torch.minimum(_rival(costs, 1), _rival(costs, 2))
    return F.pad(costs / rival.clamp(min=1e-9), (0, 1, 0, 1))


def _rival(costs: Tensor, dim: int) -> Tensor:
    """The least cost along a dimension, leaving out the entry itself."""
    least, second = costs.topk(2, dim, largest=False).values.split(1, dim)
    return torch.where(costs == least, second, least)


def _grow(order: Tensor, ratios: Tensor, puzzle: Puzzle, generator: torch.Generator) -> Tensor:
    """Fill the empty slots of an order (those that hold N), the clearest fit first."""
    cells = len(order)
    neighbours = _torus(puzzle.grid) if puzzle.floating else puzzle.neighbours
    order = F.pad(order, (0, 1), value=cells)
    if (order == cells).all():
        order[0] = torch.randint(cells, (), generator=generator)
    unused = torch.ones(cells + 1, dtype=torch.bool).index_fill(0, order, False)
    while unused[:cells].any():
        beside = order[neighbours]  # (N, 4) the pieces around each slot
        placed = (beside < cells).sum(1)
        slots = ((order[:cells] == cells) & (placed > 0)).nonzero().flatten()
        pieces = unused[:cells].nonzero().flatten()
        fit = ratios[OPPOSITE, beside[slots]].sum(1)[:, pieces] / placed[slots].unsqueeze(1)
        slot, piece = divmod(int(fit.argmin()), len(pieces))
        order[slots[slot]] = pieces[piece]
        unused[pieces[piece]] = False
    return _cut(order[:cells], puzzle) if puzzle.floating else order[:cells]


def _cut(order: Tensor, puzzle: Puzzle) -> Tensor:
    """Roll a torus so that the frame runs along the row and the column of borders that fit least."""
    board = order.view(puzzle.grid)
    below = puzzle.costs[BELOW][board, board.roll(-1, 0)].sum(1)  # (h,) the border under each row
    right = puzzle.costs[RIGHT][board, board.roll(-1, 1)].sum(0)
    return board.roll((-1 - int(below.argmax()), -1 - int(right.argmax())), (0, 1)).flatten()


def _tear_down(order: Tensor, ratios: Tensor, puzzle: Puzzle, doubt: float, generator: torch.Generator) -> Tensor:
    """Empty every slot that no chain of mutual best fits joins to the fixed pieces (or else to the largest part).

    A share `doubt` of these borders is not trusted, so that every round tears down something else.
    """
    cells = len(order)
    beside = F.pad(order, (0, 1), value=cells)[puzzle.neighbours]
    links = []
    for direction in (RIGHT, BELOW):
        trusted = torch.rand(cells, generator=generator) >= doubt
        best_fit = (ratios[direction][order, beside[:, direction]] < 1) & (beside[:, direction] < cells)
        ends = (trusted & best_fit).nonzero().flatten()
        links.append(torch.stack([ends, puzzle.neighbours[ends, direction]]))
    fixed = torch.ones(cells, dtype=torch.bool).index_fill(0, puzzle.free, False).nonzero().flatten()
    links.append(torch.stack([fixed[:-1], fixed[1:]]))  # what is fixed holds together
    rows, columns = torch.cat(links, 1).numpy()
    graph = csr_array((torch.ones(len(rows)).numpy(), (rows, columns)), shape=(cells, cells))
    part = torch.from_numpy(connected_components(graph, directed=False)[1]).long()
    anchor = part.bincount().argmax() if puzzle.floating else part[fixed[0]]
    return torch.where(part == anchor, order, cells)


def _settle(order: Tensor, puzzle: Puzzle, generator: torch.Generator, patience: int = 12) -> Tensor:
    """Reassign random sets of slots that do not touch, until `patience` of them in a row have not helped."""
    idle = 0
    cost = total_cost(order, puzzle)
    while idle < patience:
        order = _reassigned(order, _apart(puzzle, generator), puzzle)
        before = cost
        cost = total_cost(order, puzzle)
        idle = 0 if cost < before * (1 - 1e-6) else idle + 1
    return order


def _apart(puzzle: Puzzle, generator: torch.Generator) -> Tensor:
    """Free slots of which no two touch: those that drew a higher lot than all their neighbours, in two draws."""
    cells = len(puzzle.neighbours)
    eligible = torch.zeros(cells + 1).index_fill(0, puzzle.free, 1)
    slots = []
    for _ in range(2):
        lots = torch.rand(cells + 1, generator=generator) * eligible
        winners = (lots[:cells] > lots[puzzle.neighbours].amax(1)).nonzero().flatten()
        eligible[winners] = 0
        eligible[puzzle.neighbours[winners]] = 0
        slots.append(winners)
    return torch.cat(slots)


def _reassigned(order: Tensor, slots: Tensor, puzzle: Puzzle) -> Tensor:
    """The best order of the pieces in slots that do not touch."""
    beside = F.pad(order, (0, 1), value=len(order))[puzzle.neighbours[slots]]  # (S, 4)
    pieces = order[slots]
    fit = puzzle.costs[OPPOSITE, beside].sum(1)[:, pieces]  # (S slots, S pieces)
    _, assignment = linear_sum_assignment(fit.numpy())
    return order.index_copy(0, slots, pieces[torch.from_numpy(assignment)])


def _puzzle(picture: Tensor, patch: int, mask: Tensor | None) -> Puzzle:
    if picture.ndim != 3 or picture.shape[0] != 3 or not picture.isfinite().all():
        raise InputError(f"the picture must be RGB of shape (3, H, W) and finite, not {tuple(picture.shape)}")
    if patch < 2:
        raise InputError(f"a piece needs 2 pixels or more to have a border that can fit, not {patch}")
    rows, columns = image_grid(picture.unsqueeze(0), patch)
    cells = rows * columns
    mask = torch.ones(cells, dtype=torch.bool) if mask is None else mask.cpu()
    if mask.dtype != torch.bool or mask.shape != (cells,):
        raise InputError(f"mask must be bool of shape ({cells},), one entry per patch, not {tuple(mask.shape)}")
    costs = F.pad(border_costs(_pieces(picture.cpu().float().clamp(0, 1), patch)), (0, 1, 0, 1))
    return Puzzle(costs, _neighbours((rows, columns)), mask.nonzero().flatten(), (rows, columns))


def _neighbours(grid: tuple[int, int]) -> Tensor:
    """(N, 4) slots beside each slot, N beyond the frame."""
    cells = grid[0] * grid[1]
    board = F.pad(torch.arange(cells).view(grid), (1, 1, 1, 1), value=cells)
    sides = (board[1:-1, 2:], board[1:-1, :-2], board[2:, 1:-1], board[:-2, 1:-1])
    return torch.stack([side.flatten() for side in sides], 1)


def _torus(grid: tuple[int, int]) -> Tensor:
    """(N, 4) slots beside each slot on a board whose opposite edges touch."""
    board = torch.arange(grid[0] * grid[1]).view(grid)
    return torch.stack([board.roll(shift, dim).flatten() for dim, shift in ((1, -1), (1, 1), (0, -1), (0, 1))], 1)


def _pieces(picture: Tensor, patch: int) -> Tensor:
    """(N, P, P, 3) from (3, H, W)."""
    return patchify(picture, patch).view(-1, len(picture), patch, patch).permute(0, 2, 3, 1).contiguous()


def _picture(pieces: Tensor, grid: tuple[int, int]) -> Tensor:
    """(3, H, W) from (N, P, P, 3)."""
    return unpatchify(pieces.permute(0, 3, 1, 2).flatten(1), grid, pieces.shape[1])
