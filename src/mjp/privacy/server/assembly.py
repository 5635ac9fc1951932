"""Put patches together to several pictures: every place has one patch of each, in an unknown order.

1. Borders. Places grow together, first where one order of their patches fits much better than any other.
2. The update. Only the right pictures explain it, so groups of patches are exchanged between pictures, those that were
   joined last first, and single patches for other candidates, as long as the update is explained better.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, cycle, islice, permutations

import torch
from torch import Tensor

from mjp.privacy.server.puzzle_solver import BELOW, RIGHT, border_costs

MAX_TRIES = 3000  # exchanges

Cell = list[int]  # places that have grown together


class Assembly:
    """`points` (N, B, P) in levels: the patches of every place. `order` (N, B): which of them each picture takes."""

    def __init__(self, points: Tensor, grid: tuple[int, int], patch: tuple[int, int]) -> None:
        cells, batch, _ = points.shape
        pieces = (points / 255).view(cells * batch, 3, *patch).permute(0, 2, 3, 1).float()
        costs = border_costs(pieces)[:, : len(pieces), : len(pieces)].double()
        costs = costs.view(4, cells, batch, cells, batch)
        self.points = points
        self.order = torch.arange(batch).repeat(cells, 1)
        self.groups: list[Cell] = []
        self.borders = {
            (first, second): costs[side, first, :, second]  # (B, B)
            for first in range(cells)
            for side, second in _neighbours(first, grid)
        }
        self.permutations = torch.tensor(list(permutations(range(batch))))  # (B!, B)
        self._grow([[cell] for cell in range(cells)])

    @property
    def pictures(self) -> Tensor:
        """(B, N, P)."""
        batch = self.order.shape[1]
        return torch.stack([self.points[torch.arange(len(self.points)), self.order[:, b]] for b in range(batch)])

    def _grow(self, parts: list[Cell]) -> None:
        while len(parts) > 1:
            self.groups += [part for part in parts if part not in self.groups]
            joints = []
            for first, second in combinations(range(len(parts)), 2):
                costs = self._joint_costs(parts[first], parts[second])
                if costs is not None:
                    best = costs.sort().values
                    joints.append((float(best[1] - best[0]), first, second, int(costs.argmin())))
            _, first, second, number = max(joints)
            self.order[parts[second]] = self.order[parts[second]][:, self.permutations[number]]
            joined = parts[first] + parts[second]
            parts = [part for place, part in enumerate(parts) if place not in (first, second)] + [joined]

    def _joint_costs(self, first: Cell, second: Cell) -> Tensor | None:
        """(B!,) of the borders between two groups for every order of the second; None if they do not touch."""
        total: Tensor | None = None
        for one in first:
            for two in second:
                table = self.borders.get((one, two))
                if table is None and (two, one) in self.borders:
                    table = self.borders[two, one].T
                if table is not None:
                    ordered = table[self.order[one]][:, self.order[two]]  # (B, B)
                    costs = ordered[torch.arange(len(ordered)), self.permutations].sum(1)
                    total = costs if total is None else total + costs
        return total


def refine(
    pictures: Tensor, groups: Sequence[Cell], spare: Sequence[Tensor], score: Callable[[Tensor], float]
) -> Tensor:
    """(B, N, P) pictures after all exchanges that raise their score.

    groups: places whose patches two pictures may exchange, the last first; spare: other candidates of every place.
    """
    best = score(pictures)
    pairs = list(combinations(range(len(pictures)), 2))
    moves = [partial(_exchanged, group=group, one=one, two=two) for group in reversed(groups) for one, two in pairs]
    moves += [
        partial(_replaced, number=number, cell=cell, point=point)
        for cell, points in enumerate(spare)
        for point in points
        for number in range(len(pictures))
    ]
    idle = 0
    for move in islice(cycle(moves), MAX_TRIES):
        attempt = move(pictures)
        value = score(attempt)
        idle = 0 if value > best else idle + 1
        if value > best:
            pictures = attempt
            best = value
        if idle == len(moves):
            break
    return pictures


def _exchanged(pictures: Tensor, group: Cell, one: int, two: int) -> Tensor:
    moved = pictures.clone()
    moved[one, group] = pictures[two, group]
    moved[two, group] = pictures[one, group]
    return moved


def _replaced(pictures: Tensor, number: int, cell: int, point: Tensor) -> Tensor:
    moved = pictures.clone()
    moved[number, cell] = point
    return moved


def _neighbours(cell: int, grid: tuple[int, int]) -> list[tuple[int, int]]:
    """(side, place) to the right and below."""
    row, column = divmod(cell, grid[1])
    right = [(RIGHT, cell + 1)] if column + 1 < grid[1] else []
    return right + ([(BELOW, cell + grid[1])] if row + 1 < grid[0] else [])
