"""The jigsaws of an evaluation: that of a picture depends on seed, draw and the picture's number, and on nothing else.

So a figure does not change with the batch size, the number of workers or the order of the pictures, and two models, or
two ratios, are compared on the same draws. Plans are drawn for blocks of neighbouring numbers, because drawing one at a
time would cost as much as a forward pass.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch

from mjp.common.seeds import derive_seed
from mjp.method.config import SamplerName
from mjp.method.plan import Plan, sample_plan

BLOCK = 64  # pictures whose plans are drawn together
CACHED_BLOCKS = 64  # more than a batch needs, for all ratios and draws of an ordinary sweep


def jigsaw(
    numbers: Sequence[int],
    grid: tuple[int, int],
    ratio: float,
    *,
    seed: int,
    draw: int,
    sampler: SamplerName = "blockwise",
) -> Plan:
    """The plan of the pictures with these numbers, on the CPU, so that every device gets the same."""
    blocks = sorted({number // BLOCK for number in numbers})
    plans = [_block(grid, ratio, derive_seed(seed, draw, block), sampler) for block in blocks]
    first_row = {block: BLOCK * place for place, block in enumerate(blocks)}
    rows = torch.tensor([first_row[number // BLOCK] + number % BLOCK for number in numbers])
    mask, permutation, inverse = (torch.cat(parts)[rows] for parts in zip(*(plan[:3] for plan in plans), strict=True))
    return Plan(mask, permutation, inverse, grid, plans[0].budget)


@lru_cache(maxsize=CACHED_BLOCKS)
def _block(grid: tuple[int, int], ratio: float, seed: int, sampler: SamplerName) -> Plan:
    return sample_plan(BLOCK, grid, ratio, generator=torch.Generator().manual_seed(seed), sampler=sampler)
