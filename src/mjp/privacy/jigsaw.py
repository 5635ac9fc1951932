"""A jigsaw solver: put the shuffled patches of a picture back by how well their borders fit.

An attack on MJP may find every masked patch and not where it belongs. Here an order of the pieces is searched that makes
the borders between neighbours fit, with whatever is known to lie right (the unmasked patches) held in place.

1. Border costs. The step across a border should look like the steps beside it (Gallagher 2012): their mean and
   covariance, over the colours, say how surprising it is. A heavy-tailed law keeps true edges from dominating.
2. Grow. Place the piece with the clearest fit beside what lies already, again and again. "Clear" is the ratio of a cost
   to that of the next best rival, so an unmistakable fit comes before one that any piece of sky would have.
3. Reassign. Slots without a common border do not see each other, so the best order of the pieces in such a set is an
   assignment problem, solved exactly. Random sets, one after the other, never make the picture worse.
4. Tear down what is not joined by borders that are each other's best fit, grow again, keep the better picture.

With nothing held in place the frame is unknown too: pieces then grow on a torus, which is cut where it fits least.
Up to `BRUTE_FORCE` pieces, or when no two free slots touch, the best order is found exactly instead.
"""

from itertools import permutations
from typing import NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from mjp.errors import InputError
from mjp.method.plan import check_generator
from mjp.method.shuffle import image_grid

BRUTE_FORCE = 7
FLOOR = 1e-5  # variance of a step that quantisation to 1/255 leaves even in a flat area
TAIL = 3.0  # degrees of freedom of the law of a step
RIGHT, LEFT, BELOW, ABOVE = range(4)


class Solution(NamedTuple):
    picture: Tensor  # (3, H, W) with its pieces moved
    order: Tensor  # (N,) int64: slot i receives the piece that lay in slot order[i], as in Plan.permutation
    cost: float  # of all borders; comparable between orders of one picture only


class _Puzzle(NamedTuple):
    costs: Tensor  # (4, N + 1, N + 1): how badly piece b fits to the right of, left of, below, above a; N is no piece
    ratios: Tensor  # the same, relative to the best rival: below 1 when a and b are each other's best fit
    neighbours: Tensor  # (N, 4) slot to the right, left, below, above; N beyond the frame
    free: Tensor  # (K,) slots whose pieces may move
    grid: tuple[int, int]


@torch.no_grad()
def solve(
    picture: Tensor, patch: int, mask: Tensor | None = None, *, generator: torch.Generator, rounds: int = 20
) -> Solution:
    """Reorder the pieces of a (3, H, W) picture in the slots of a (N,) mask (None: all) so that their borders fit."""
    check_generator(generator)
    puzzle = _puzzle(picture, patch, mask)
    order = torch.arange(len(puzzle.neighbours))
    if not _touches(puzzle.neighbours, puzzle.free):
        order = _reassigned(order, puzzle.free, puzzle)
    elif len(puzzle.free) <= BRUTE_FORCE:
        order = _best_of_all(order, puzzle)
    else:
        order = _search(puzzle, generator, rounds)
    pieces = _pieces(picture, patch)[order.to(picture.device)]
    return Solution(_picture(pieces, puzzle.grid), order.to(picture.device), _total(order, puzzle).item())


def border_costs(pieces: Tensor) -> Tensor:
    """(4, N, N) from (N, P, P, 3): how badly piece b fits to the right of, left of, below and above piece a."""
    right = _one_way(pieces, pieces) + _one_way(pieces.flip(2), pieces.flip(2)).T
    pieces = pieces.transpose(1, 2)
    below = _one_way(pieces, pieces) + _one_way(pieces.flip(2), pieces.flip(2)).T
    return torch.stack([right, right.T, below, below.T])


def _one_way(a: Tensor, b: Tensor) -> Tensor:
    """(N, N): how surprising the step from the last column of a to the first of b is, going by the steps inside a."""
    edge = a[:, :, -1]  # (N, P, 3)
    steps = edge - a[:, :, -2]
    mean = steps.mean(1, keepdim=True)
    spread = (steps - mean).mT @ (steps - mean) / steps.shape[1]
    spread = spread + FLOOR * torch.eye(3, dtype=a.dtype, device=a.device)
    whiten = torch.linalg.cholesky(torch.linalg.inv(spread))  # (N, 3, 3)
    # whitened apart, (N, P, 3) and (N, N, P, 3), so that the large one is made once
    surprise = (b[None, :, :, 0] @ whiten[:, None]) - ((edge + mean) @ whiten)[:, None]
    return TAIL * torch.log1p(surprise.square().sum(-1) / TAIL).sum(-1)


def _search(puzzle: _Puzzle, generator: torch.Generator, rounds: int) -> Tensor:
    """Grow, reassign, tear down and grow again; the best order seen."""
    cells = len(puzzle.neighbours)
    floating = len(puzzle.free) == cells
    start = torch.arange(cells)
    start[puzzle.free] = cells  # empty slots hold no piece
    best = _reassigned_often(_grow(start, puzzle, generator), puzzle, generator)
    for _ in range(rounds):
        kept = _joined(best, puzzle, floating, generator)
        order = _reassigned_often(_grow(kept, puzzle, generator), puzzle, generator)
        if _total(order, puzzle) < _total(best, puzzle):
            best = order
    return best


def _grow(order: Tensor, puzzle: _Puzzle, generator: torch.Generator) -> Tensor:
    """Fill the empty slots of an order, the clearest fit first."""
    cells = len(order)
    floating = len(puzzle.free) == cells
    neighbours = _torus(puzzle.grid) if floating else puzzle.neighbours
    order = torch.cat([order, torch.tensor([cells])])
    if (order == cells).all():
        order[0] = torch.randint(cells, (1,), generator=generator)
    beside = order[neighbours]  # (N, 4) piece to the right, left, … of each slot
    # a piece to my right has me to its left: opposite directions
    totals = puzzle.ratios[[LEFT, RIGHT, ABOVE, BELOW], beside].sum(1)[:, :cells]  # (N slots, N pieces)
    known = (beside < cells).sum(1)
    closed = order[:cells] < cells
    used = torch.zeros(cells + 1, dtype=torch.bool).index_fill_(0, order, True)[:cells]
    fit = totals / known.unsqueeze(1)
    fit[closed | (known == 0)] = torch.inf
    fit[:, used] = torch.inf
    blocked = torch.zeros(cells)
    blocked[used] = torch.inf
    for _ in range(int((~closed).sum())):
        slot, piece = divmod(int(fit.argmin()), cells)
        order[slot], closed[slot], blocked[piece] = piece, True, torch.inf
        fit[slot], fit[:, piece] = torch.inf, torch.inf
        for direction, other in enumerate(neighbours[slot].tolist()):
            if other < cells and not closed[other]:
                totals[other] += puzzle.ratios[direction, piece, :cells]
                known[other] += 1
                fit[other] = totals[other] / known[other] + blocked
    order = order[:cells]
    return _cut(order, puzzle) if floating else order


def _cut(order: Tensor, puzzle: _Puzzle) -> Tensor:
    """Roll a torus so that the frame runs along the row and the column of borders that fit least."""
    board = order.view(puzzle.grid)
    below = puzzle.costs[BELOW][board, board.roll(-1, 0)].mean(1)  # (h,) border under each row
    right = puzzle.costs[RIGHT][board, board.roll(-1, 1)].mean(0)
    return board.roll((-1 - int(below.argmax()), -1 - int(right.argmax())), (0, 1)).flatten()


def _joined(order: Tensor, puzzle: _Puzzle, floating: bool, generator: torch.Generator) -> Tensor:
    """The order with those slots emptied that no chain of mutual best fits joins to the fixed pieces.

    Each such border is overlooked with some probability, so that no two rounds tear down the same. Without fixed
    pieces the largest part that hangs together stays.
    """
    cells = len(order)
    padded = torch.cat([order, torch.tensor([cells])])
    good = torch.stack([puzzle.ratios[d, order, padded[puzzle.neighbours[:, d]]] < 1 for d in (RIGHT, BELOW)], 1)
    good &= puzzle.neighbours[:, [RIGHT, BELOW]] < cells
    good &= torch.rand(good.shape, generator=generator) > 0.1
    start, direction = good.nonzero(as_tuple=True)
    end = puzzle.neighbours[:, [RIGHT, BELOW]][start, direction]
    ground = torch.full((cells,), True)
    ground[puzzle.free] = False
    fixed = ground.nonzero().flatten()
    start, end = torch.cat([start, fixed[:-1]]), torch.cat([end, fixed[1:]])  # fixed pieces hang together
    graph = csr_array((torch.ones(len(start)).numpy(), (start.numpy(), end.numpy())), shape=(cells, cells))
    part = torch.from_numpy(connected_components(graph, directed=False)[1]).long()
    keep = part.bincount().argmax() if floating else part[fixed[0]]
    return torch.where(part == keep, order, cells)


def _reassigned_often(order: Tensor, puzzle: _Puzzle, generator: torch.Generator, patience: int = 12) -> Tensor:
    """Reassign random sets of free slots that do not touch until that has stopped helping."""
    idle, cost = 0, _total(order, puzzle)
    while idle < patience:
        order = _reassigned(order, _apart(puzzle, generator), puzzle)
        before, cost = cost, _total(order, puzzle)
        idle = 0 if cost < before - 1e-6 else idle + 1
    return order


def _apart(puzzle: _Puzzle, generator: torch.Generator) -> Tensor:
    """Free slots of which no two touch: a slot is in if it drew more than its neighbours, in two draws."""
    cells = len(puzzle.neighbours)
    open_ = torch.zeros(cells + 1).index_fill_(0, puzzle.free, 1)
    chosen = torch.zeros(cells + 1, dtype=torch.bool)
    for _ in range(2):
        lots = torch.rand(cells + 1, generator=generator) * open_
        winners = (lots[:cells] > lots[puzzle.neighbours].amax(1)).nonzero().flatten()
        chosen[winners] = True
        open_[winners] = 0
        open_[puzzle.neighbours[winners]] = 0
    return chosen[:cells].nonzero().flatten()


def _reassigned(order: Tensor, slots: Tensor, puzzle: _Puzzle) -> Tensor:
    """The best order of the pieces in slots that do not touch each other."""
    padded = torch.cat([order, torch.tensor([len(order)])])
    beside = padded[puzzle.neighbours[slots]]  # (S, 4)
    pieces = order[slots]
    fit = puzzle.costs[[LEFT, RIGHT, ABOVE, BELOW], beside].sum(1)[:, pieces]  # (S slots, S pieces)
    _, chosen = linear_sum_assignment(fit.numpy())
    return order.index_copy(0, slots, pieces[torch.from_numpy(chosen)])


def _best_of_all(order: Tensor, puzzle: _Puzzle) -> Tensor:
    """Try every order of the free pieces."""
    choices = puzzle.free[torch.tensor(list(permutations(range(len(puzzle.free)))))]  # (K!, K)
    orders = order.repeat(len(choices), 1)
    orders[:, puzzle.free] = choices
    return orders[_total(orders, puzzle).argmin()]


def _total(order: Tensor, puzzle: _Puzzle) -> Tensor:
    """Cost of all borders of an (N,) order, or of each of (M, N)."""
    padded = torch.cat([order, torch.full_like(order[..., :1], order.shape[-1])], -1)
    return sum(
        (puzzle.costs[d][order, padded[..., puzzle.neighbours[:, d]]].sum(-1) for d in (RIGHT, BELOW)),
        start=torch.zeros(()),
    )


def _puzzle(picture: Tensor, patch: int, mask: Tensor | None) -> _Puzzle:
    if picture.ndim != 3 or picture.shape[0] != 3 or not picture.isfinite().all():
        raise InputError(f"the picture must be finite RGB of shape (3, H, W), not {tuple(picture.shape)}")
    grid = image_grid(picture.unsqueeze(0), patch)
    cells = grid[0] * grid[1]
    mask = torch.ones(cells, dtype=torch.bool) if mask is None else mask.cpu()
    if patch < 2 or mask.dtype != torch.bool or mask.shape != (cells,):
        raise InputError(f"a puzzle needs patches of 2 pixels or more and a bool mask of shape ({cells},)")
    costs = border_costs(_pieces(picture.detach().cpu().double(), patch)).float()
    neighbours = _frame(grid)
    return _Puzzle(_padded(costs), _padded(_ratios(costs, mask)), neighbours, mask.nonzero().flatten(), grid)


def _ratios(costs: Tensor, mask: Tensor) -> Tensor:
    """Each cost over that of the best rival, on either side of the border."""
    costs = costs.clone()
    costs[:, torch.eye(costs.shape[1], dtype=torch.bool)] = torch.inf  # no piece lies beside itself
    costs[:, ~mask.unsqueeze(1) & ~mask] = torch.inf  # fixed pieces compete for nothing
    return costs / torch.minimum(_rival(costs, 1), _rival(costs, 2)).clamp(min=1e-9)


def _rival(costs: Tensor, dim: int) -> Tensor:
    """The least cost along a dimension, leaving out the entry itself."""
    least, second = costs.topk(2, dim, largest=False).values.unbind(dim)
    least, second = least.unsqueeze(dim), second.unsqueeze(dim)
    return torch.where(costs == least, second, least)


def _padded(costs: Tensor) -> Tensor:
    """With a last row and column of zeros: beside no piece everything fits."""
    return torch.nn.functional.pad(costs, (0, 1, 0, 1))


def _frame(grid: tuple[int, int]) -> Tensor:
    """(N, 4) neighbours of each slot, N beyond the frame."""
    cells = grid[0] * grid[1]
    board = torch.nn.functional.pad(torch.arange(cells).view(grid), (1, 1, 1, 1), value=cells)
    sides = (board[1:-1, 2:], board[1:-1, :-2], board[2:, 1:-1], board[:-2, 1:-1])
    return torch.stack([side.flatten() for side in sides], 1)


def _torus(grid: tuple[int, int]) -> Tensor:
    """(N, 4) neighbours of each slot when the frame has no ends."""
    board = torch.arange(grid[0] * grid[1]).view(grid)
    return torch.stack([board.roll(shift, dim).flatten() for dim, shift in ((1, -1), (1, 1), (0, -1), (0, 1))], 1)


def _touches(neighbours: Tensor, slots: Tensor) -> bool:
    return bool(torch.isin(neighbours[slots], slots).any())


def _pieces(picture: Tensor, patch: int) -> Tensor:
    """(N, P, P, 3) from (3, H, W)."""
    channels, height, width = picture.shape
    cut = picture.reshape(channels, height // patch, patch, width // patch, patch)
    return cut.permute(1, 3, 2, 4, 0).reshape(-1, patch, patch, channels)


def _picture(pieces: Tensor, grid: tuple[int, int]) -> Tensor:
    """(3, H, W) from (N, P, P, 3)."""
    patch, channels = pieces.shape[1], pieces.shape[3]
    board = pieces.view(*grid, patch, patch, channels).permute(4, 0, 2, 1, 3)
    return board.reshape(channels, grid[0] * patch, grid[1] * patch)
