"""Which patches are masked: three samplers, each `(batch, grid, budget) -> mask`.

A mask is bool (B, N), True = masked. Inside a sampler the batch is the last axis, (h, w, B): then every step is a
plain vectorised operation over images, with no Python loop over images or patches and no host synchronisation.

`blockwise`  the paper's Algorithm 1 with an exact budget: rectangles until ⌊γN⌋ cells are masked, always.
`reference`  the law of the authors' code, under-filling included, for comparisons with their checkpoints.
`uniform`    no blocks: every set of ⌊γN⌋ cells is equally likely.
"""

import math
from typing import Protocol

import torch
from torch import Tensor

REFERENCE_TRIES = 128  # more than any image uses: it is full, or has given up, long before
REFERENCE_PATIENCE = 10  # rejected tries in a row after which the authors' sampler gives up
REFERENCE_MAX_BLOCK = 75  # the authors' cap on the cells of one block, whatever the budget


class Sampler(Protocol):
    def __call__(
        self,
        batch: int,
        grid: tuple[int, int],
        budget: int,
        *,
        generator: torch.Generator,
        min_block: int,
        aspect: tuple[float, float],
    ) -> Tensor: ...


def blockwise(
    batch: int,
    grid: tuple[int, int],
    budget: int,
    *,
    generator: torch.Generator,
    min_block: int,
    aspect: tuple[float, float],
) -> Tensor:
    """Rectangles of random area and aspect until exactly `budget` cells are masked."""
    draws = torch.rand(_tries(grid, budget), 4, batch, generator=generator, device=generator.device)
    mask = draws.new_zeros(*grid, batch, dtype=torch.bool)
    remaining = torch.full_like(draws[0, 0], budget)
    for draw in draws:
        smallest = remaining.clamp(max=min_block)
        area = smallest + (remaining - smallest) * draw[0]
        height, width = _sides(area, draw[1], aspect)
        # a block longer than the grid is cut to it, so that narrow grids fill as well as square ones
        block = _place(grid, height.clamp(1, grid[0]), width.clamp(1, grid[1]), draw[2], draw[3])
        mask, added = _accept(mask, block, remaining)
        remaining = remaining - added
    start = torch.rand(batch, generator=generator, device=generator.device)
    return _complete(mask.flatten(0, 1).T, remaining, start)


def reference(
    batch: int,
    grid: tuple[int, int],
    budget: int,
    *,
    generator: torch.Generator,
    min_block: int,
    aspect: tuple[float, float],
) -> Tensor:
    """The authors' law: blocks never below `min_block` in intent, ten rejections in a row end it, full or not."""
    draws = torch.rand(REFERENCE_TRIES, 4, batch, generator=generator, device=generator.device)
    mask = draws.new_zeros(*grid, batch, dtype=torch.bool)
    remaining = torch.full_like(draws[0, 0], budget)
    rejected = torch.zeros_like(remaining)
    for draw in draws:
        # below min_block the interval is upside down: areas above the budget are drawn and rejected
        largest = remaining.clamp(max=REFERENCE_MAX_BLOCK)
        area = min_block + (largest - min_block) * draw[0]
        height, width = _sides(area, draw[1], aspect)
        block = _place(grid, height, width, draw[2], draw[3])
        possible = (height < grid[0]) & (width < grid[1]) & (rejected < REFERENCE_PATIENCE)
        mask, added = _accept(mask, block & possible, largest)
        remaining = remaining - added
        rejected = torch.where(added > 0, 0, rejected + 1).clamp_(max=REFERENCE_PATIENCE)
    return mask.flatten(0, 1).T.contiguous()


def uniform(
    batch: int,
    grid: tuple[int, int],
    budget: int,
    *,
    generator: torch.Generator,
    min_block: int,
    aspect: tuple[float, float],
) -> Tensor:
    """`budget` cells without regard to blocks (`min_block` and `aspect` have no meaning here)."""
    noise = torch.rand(batch, grid[0] * grid[1], generator=generator, device=generator.device)
    chosen = noise.topk(budget, dim=1, sorted=False).indices
    return torch.zeros_like(noise, dtype=torch.bool).scatter_(1, chosen, True)


SAMPLERS: dict[str, Sampler] = {"blockwise": blockwise, "reference": reference, "uniform": uniform}


def _tries(grid: tuple[int, int], budget: int) -> int:
    """How many blocks to try: fixed in advance, because "until every image is full" would need the host to look.

    The fuller the grid, the more tries are rejected. On a 14x14 grid this leaves to `_complete` under 0.1 % of the
    budget up to γ = .5 and about 1 % at γ = .9.
    """
    return 12 + round(32 * (budget / (grid[0] * grid[1])) ** 2)


def _sides(area: Tensor, draw: Tensor, aspect: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Height and width (whole numbers as floats) of blocks of this area, aspect log-uniform."""
    low, high = math.log(aspect[0]), math.log(aspect[1])
    ratio = torch.exp(low + (high - low) * draw)
    return (area * ratio).sqrt().round(), (area / ratio).sqrt().round()


def _place(grid: tuple[int, int], height: Tensor, width: Tensor, top: Tensor, left: Tensor) -> Tensor:
    """Blocks placed uniformly where they fit; bool (h, w, B)."""
    rows = torch.arange(grid[0], device=height.device, dtype=height.dtype).unsqueeze(1)  # (h, 1)
    columns = torch.arange(grid[1], device=height.device, dtype=height.dtype).unsqueeze(1)  # (w, 1)
    top = (top * (grid[0] - height + 1)).floor()
    left = (left * (grid[1] - width + 1)).floor()
    in_rows = (rows >= top) & (rows < top + height)  # (h, B)
    in_columns = (columns >= left) & (columns < left + width)  # (w, B)
    return in_rows.unsqueeze(1) & in_columns.unsqueeze(0)


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
