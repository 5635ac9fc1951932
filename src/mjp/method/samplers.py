"""Which patches are masked: three samplers, each `(batch, grid, budget) -> mask`.

A mask is bool (B, N), True = masked. Inside a sampler the batch is the last axis, (h, w, B): then every step is a
plain vectorised operation over images, with no Python loop over images or patches and no host synchronisation.

`blockwise`  the paper's Algorithm 1 with an exact budget: rectangles until ⌊γN⌋ cells are masked, always.
`reference`  the law of the authors' code, under-filling included, for comparisons with their checkpoints.
`uniform`    no blocks: every set of ⌊γN⌋ cells is equally likely.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

REFERENCE_PATIENCE = 10  # rejected tries in a row after which the authors' sampler gives up
REFERENCE_MAX_BLOCK = 75  # cells of one block: a default of the authors' code that stays when the budget changes


class Law(NamedTuple):
    """What blocks are drawn from, and how small and how oblong they may be."""

    generator: torch.Generator
    min_block: int = 8
    aspect: tuple[float, float] = (0.3, 1 / 0.3)  # smallest and largest height/width


def blockwise(batch: int, grid: tuple[int, int], budget: int, law: Law) -> Tensor:
    """Rectangles of random area and aspect until exactly `budget` cells are masked."""
    areas, shapes, places = _draws(batch, _tries(grid, budget), law)
    mask = torch.zeros(*grid, batch, dtype=torch.bool, device=areas.device)
    remaining = torch.full_like(areas[0], budget)
    limits, cells = _rulers(grid, areas)
    for draw, shape, place in zip(areas, shapes, places, strict=True):
        area = torch.lerp(remaining.clamp(max=law.min_block), remaining, draw)
        # a block longer than the grid is cut to it, so that narrow grids fill as well as square ones
        sides = (area.sqrt() * shape).round().clamp(min=1).minimum(limits)
        mask, added = _accept(mask, _block(grid, sides, place, limits, cells), remaining)
        remaining = remaining - added
    start = torch.rand(batch, generator=law.generator, device=law.generator.device)
    return _complete(mask.flatten(0, 1).T, remaining, start)


def reference(batch: int, grid: tuple[int, int], budget: int, law: Law) -> Tensor:
    """The authors' law: blocks never below `min_block` in intent, ten rejections in a row end it, full or not."""
    tries = 100 + budget // 4  # more than an image uses until it is full or has given up, also on large grids
    areas, shapes, places = _draws(batch, tries, law)
    mask = torch.zeros(*grid, batch, dtype=torch.bool, device=areas.device)
    remaining = torch.full_like(areas[0], budget)
    rejected = torch.zeros_like(remaining)
    limits, cells = _rulers(grid, areas)
    for draw, shape, place in zip(areas, shapes, places, strict=True):
        # below min_block the interval is upside down: areas above the budget are drawn and rejected
        largest = remaining.clamp(max=REFERENCE_MAX_BLOCK)
        sides = ((law.min_block + (largest - law.min_block) * draw).sqrt() * shape).round()
        possible = (sides[0] < grid[0]) & (sides[1] < grid[1]) & (rejected < REFERENCE_PATIENCE)
        mask, added = _accept(mask, _block(grid, sides, place, limits, cells) & possible, largest)
        remaining = remaining - added
        rejected = torch.where(added > 0, 0, rejected + 1).clamp_(max=REFERENCE_PATIENCE)
    return mask.flatten(0, 1).T.contiguous()


def uniform(batch: int, grid: tuple[int, int], budget: int, law: Law) -> Tensor:
    """Any `budget` cells; only the generator of the law is used."""
    noise = torch.rand(batch, grid[0] * grid[1], generator=law.generator, device=law.generator.device)
    cells = noise.topk(budget, dim=1, sorted=False).indices
    return torch.zeros_like(noise, dtype=torch.bool).scatter_(1, cells, True)


SAMPLERS: dict[str, Callable[[int, tuple[int, int], int, Law], Tensor]] = {
    "blockwise": blockwise,
    "reference": reference,
    "uniform": uniform,
}


def _tries(grid: tuple[int, int], budget: int) -> int:
    """How many blocks to try: fixed in advance, because "until every image is full" would need the host to look.

    The fuller the grid, the more tries are rejected. What is left to `_complete` on a 14x14 grid is under 1 % of the
    budget up to γ = .75 and under 3 % at γ = .9; at γ = 1 it makes no difference.
    """
    return 8 + round(36 * (budget / (grid[0] * grid[1])) ** 2)


def _draws(batch: int, tries: int, law: Law) -> tuple[Tensor, Tensor, Tensor]:
    """All randomness of the tries: areas (tries, B), √aspect and its inverse (tries, 2, B), places (tries, 2, B)."""
    noise = torch.rand(tries, 4, batch, generator=law.generator, device=law.generator.device)
    low, high = math.log(law.aspect[0]) / 2, math.log(law.aspect[1]) / 2
    tall = torch.exp(low + (high - low) * noise[:, 1])
    return noise[:, 0], torch.stack([tall, 1 / tall], 1), noise[:, 2:]


def _rulers(grid: tuple[int, int], like: Tensor) -> tuple[Tensor, Tensor]:
    """The sides of the grid (2, 1) and the numbers 0, 1, ... along the longer one (1, side, 1), made on the device."""
    limits = torch.cat([like.new_full((1, 1), side) for side in grid])
    return limits, torch.arange(max(grid), device=like.device, dtype=like.dtype).view(1, -1, 1)


def _block(grid: tuple[int, int], sides: Tensor, place: Tensor, limits: Tensor, cells: Tensor) -> Tensor:
    """Blocks of (2, B) sides placed uniformly where they fit; bool (h, w, B)."""
    first = (place * (limits + 1 - sides)).floor()
    inside = (cells >= first.unsqueeze(1)) & (cells < (first + sides).unsqueeze(1))  # (2, longer side, B)
    return inside[0, : grid[0]].unsqueeze(1) & inside[1, : grid[1]].unsqueeze(0)


def _accept(mask: Tensor, block: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """Add each image's block if it brings at least one and at most `limit` new cells; how many it brought, (B,)."""
    new = block & ~mask
    added = new.sum((0, 1), dtype=torch.int32)
    accepted = added <= limit
    return mask | (new & accepted), added * accepted


def _complete(mask: Tensor, remaining: Tensor, start: Tensor) -> Tensor:
    """Mask `remaining` further cells of each image: the free cells that follow a random start in reading order."""
    free = ~mask  # (B, N)
    rank = free.cumsum(1)  # 1, 2, ... along the free cells
    count = rank[:, -1:]
    skipped = (start.unsqueeze(1) * count).floor()
    # ranks 1, 2, ... from the start on, and on from the beginning of the grid
    turned = torch.where(rank > skipped, rank - skipped, rank - skipped + count)
    return mask | (free & (turned <= remaining.unsqueeze(1)))
