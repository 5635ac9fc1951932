"""Which patches are masked: how many, where, and how much the result looks like blocks."""

import math
import random
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from method.tiny import generator
from mjp.method import samplers
from mjp.method.samplers import SAMPLERS, Law

ASPECT = (0.3, 1 / 0.3)
GRIDS = st.one_of(
    st.tuples(st.integers(1, 16), st.integers(1, 16)),
    st.tuples(st.just(1), st.integers(1, 64)),
    st.tuples(st.integers(1, 64), st.just(1)),
)


def draw(
    sampler: str,
    batch: int,
    grid: tuple[int, int],
    budget: int,
    *,
    seed: int = 0,
    min_block: int = 8,
    aspect: tuple[float, float] = ASPECT,
) -> Tensor:
    """(B, N) masks, drawn a thousand at a time: large batches leave the processor's cache."""
    source = generator(seed)
    sizes = [1000] * (batch // 1000) + ([batch % 1000] if batch % 1000 else [])
    masks = [SAMPLERS[sampler](size, grid, budget, Law(source, min_block, aspect)) for size in sizes]
    return torch.cat(masks)


def neighbour_pairs(mask: Tensor, grid: tuple[int, int]) -> float:
    """Mean number of pairs of masked cells that touch."""
    cells = mask.view(-1, *grid)
    across = (cells[:, :, 1:] & cells[:, :, :-1]).sum((1, 2))
    down = (cells[:, 1:] & cells[:, :-1]).sum((1, 2))
    return float((across + down).double().mean())


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_gives_bool_masks_of_batch_by_cells(sampler: str) -> None:
    mask = draw(sampler, 3, (5, 7), 17)
    assert mask.shape == (3, 35)
    assert mask.dtype == torch.bool
    assert mask.is_contiguous()


@pytest.mark.parametrize("sampler", ["blockwise", "uniform"])
@given(
    grid=GRIDS,
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
    min_block=st.integers(1, 40),
    shape=st.tuples(st.floats(0.02, 50), st.floats(1, 20)),
)
def test_fills_the_budget_exactly(
    sampler: str, grid: tuple[int, int], share: float, seed: int, min_block: int, shape: tuple[float, float]
) -> None:
    budget = math.floor(share * grid[0] * grid[1])
    aspect = (shape[0], shape[0] * shape[1])
    mask = draw(sampler, 5, grid, budget, seed=seed, min_block=min_block, aspect=aspect)
    assert mask.sum(1).tolist() == [budget] * 5


@pytest.mark.parametrize("sampler", ["blockwise", "uniform"])
@pytest.mark.parametrize("grid", [(1, 1), (1, 9), (9, 1), (3, 40), (40, 3), (14, 14)])
def test_fills_every_budget_from_nothing_to_everything(sampler: str, grid: tuple[int, int]) -> None:
    for budget in range(grid[0] * grid[1] + 1):
        assert draw(sampler, 2, grid, budget).sum(1).tolist() == [budget, budget]


@given(grid=GRIDS, share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_reference_never_exceeds_the_budget(grid: tuple[int, int], share: float, seed: int) -> None:
    budget = math.floor(share * grid[0] * grid[1])
    assert int(draw("reference", 5, grid, budget, seed=seed).sum(1).max()) <= budget


@pytest.mark.parametrize(
    ("ratio", "published", "rounding"),
    [
        (0.03, 3.80, 0.005),
        (0.09, 16.5, 0.05),
        (0.10, 18.6, 0.05),
        (0.15, 28.7, 0.05),
        (0.21, 40.7, 0.05),
        (0.27, 51.8, 0.05),
        (0.5, 97.8, 0.05),
        (0.9, 172.8, 0.05),
        (1.0, 181.6, 0.05),
    ],
)
def test_reference_masks_as_many_cells_as_the_authors_code(ratio: float, published: float, rounding: float) -> None:
    draws = 20_000 if ratio == 0.03 else 8_000
    counts = draw("reference", draws, (14, 14), math.floor(ratio * 196 + 1e-9)).sum(1).double()
    error = float(counts.std()) * math.sqrt(1 / draws + 1 / 20_000)  # theirs is a mean of 20,000 draws
    assert abs(float(counts.mean()) - published) < 4 * error + rounding


@pytest.mark.parametrize(("grid", "published"), [((14, 14), 0.16), ((8, 8), 0.60)])
def test_reference_is_empty_as_often_as_the_authors_code(grid: tuple[int, int], published: float) -> None:
    budget = math.floor(0.03 * grid[0] * grid[1])
    empty = (draw("reference", 20_000, grid, budget).sum(1) == 0).double().mean()
    error = math.sqrt(2 * published * (1 - published) / 20_000)
    assert abs(float(empty) - published) < 4 * error + 0.005


@pytest.mark.parametrize("aspect", [3.0, 1 / 3])
def test_reference_rejects_blocks_that_span_the_grid(aspect: float) -> None:
    """BEiT's sampler, which the authors took over, wants every side of a block shorter than the grid."""
    assert not draw("reference", 50, (3, 3), 3, min_block=3, aspect=(aspect, aspect)).any()
    assert draw("reference", 50, (4, 4), 3, min_block=3, aspect=(aspect, aspect)).any(1).all()


@pytest.mark.parametrize("sampler", ["blockwise", "reference"])
@pytest.mark.parametrize("budget", [19, 52, 98])
def test_masked_cells_form_blocks(sampler: str, budget: int) -> None:
    """At equal count, blocks have far more touching pairs than scattered cells."""
    scattered = neighbour_pairs(draw("uniform", 500, (14, 14), budget), (14, 14))
    assert neighbour_pairs(draw(sampler, 500, (14, 14), budget), (14, 14)) > 1.4 * scattered


def test_first_block_is_a_full_rectangle_of_at_least_min_block_cells() -> None:
    """A budget of min_block leaves room for one block of about that area: most masks are one solid rectangle."""
    masks = draw("blockwise", 500, (14, 14), 9, min_block=9, aspect=(1.0, 1.0)).view(-1, 14, 14)
    heights, widths = masks.any(2).sum(1), masks.any(1).sum(1)
    assert (heights == 3).all()
    assert (widths == 3).all()


def test_aspect_is_height_over_width() -> None:
    masks = draw("blockwise", 200, (14, 14), 9, min_block=9, aspect=(9.0, 9.0)).view(-1, 14, 14)
    assert (masks.any(2).sum(1) == 9).all()
    assert (masks.any(1).sum(1) == 1).all()


def test_block_aspect_is_log_uniform() -> None:
    """As many tall blocks as wide ones."""
    masks = draw("blockwise", 4000, (30, 30), 16, min_block=16).view(-1, 30, 30)
    heights, widths = masks.any(2).sum(1), masks.any(1).sum(1)
    tall, wide = int((heights > widths).sum()), int((widths > heights).sum())
    assert abs(tall - wide) < 4 * math.sqrt(tall + wide)


def test_blocks_reach_every_place_equally_often() -> None:
    """A block of 3x3 has 6x6 places on an 8x8 grid, all equally likely (chi-square, 35 degrees of freedom)."""
    masks = draw("blockwise", 7200, (8, 8), 9, min_block=9, aspect=(1.0, 1.0)).view(-1, 8, 8)
    top, left = masks.any(2).int().argmax(1), masks.any(1).int().argmax(1)
    observed = torch.bincount(top * 6 + left, minlength=36).double()
    assert float(((observed - 200) ** 2 / 200).sum()) < 80  # by chance once in 20,000 or less


def test_uniform_chooses_every_set_of_cells_equally_often() -> None:
    """All 20 ways to mask 3 of 6 cells (chi-square, 19 degrees of freedom)."""
    masks = draw("uniform", 20_000, (2, 3), 3)
    codes = (masks.long() * 2 ** torch.arange(6)).sum(1)
    observed = torch.unique(codes, return_counts=True)[1].double()
    assert len(observed) == 20
    assert float(((observed - 1000) ** 2 / 1000).sum()) < 55


def test_blockwise_leaves_cells_equally_likely_where_scattered_completion_decides() -> None:
    """On one row with blocks too large to fit, every cell is still masked as often as its mirror image."""
    masks = draw("blockwise", 8000, (1, 10), 5, min_block=5).double().mean(0)
    assert torch.allclose(masks, masks.flip(0), atol=4 * math.sqrt(0.5 / 8000))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_images_are_drawn_independently(sampler: str) -> None:
    masks = draw(sampler, 64, (14, 14), 50)
    assert len(torch.unique(masks, dim=0)) == 64


def authors_law(grid: tuple[int, int], budget: int, draws: random.Random) -> int:
    """How many cells the authors' sampler masks, written down from its description as one would by hand."""
    height, width = grid
    mask = [[False] * width for _ in range(height)]
    count, rejected = 0, 0
    while count < budget and rejected < 10:
        largest = min(budget - count, 75)
        area, aspect = draws.uniform(8, largest), math.exp(draws.uniform(math.log(0.3), math.log(1 / 0.3)))
        h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        new = []
        if h < height and w < width:
            top, left = draws.randint(0, height - h), draws.randint(0, width - w)
            new = [(i, j) for i in range(top, top + h) for j in range(left, left + w) if not mask[i][j]]
        accepted = 0 < len(new) <= largest
        rejected = 0 if accepted else rejected + 1
        for i, j in new if accepted else ():
            mask[i][j] = True
            count += 1
    return count


def test_reference_follows_the_authors_law_on_large_grids_too() -> None:
    grid, budget = (40, 40), 1440
    draws = random.Random(0)
    expected = [authors_law(grid, budget, draws) for _ in range(40)]
    found = SAMPLERS["reference"](200, grid, budget, Law(generator(0))).sum(1).double()
    error = math.hypot(
        statistics.stdev(expected) / math.sqrt(len(expected)), found.std().item() / math.sqrt(len(found))
    )
    assert abs(found.mean().item() - statistics.mean(expected)) < 4 * error


@pytest.mark.parametrize(("ratio", "share"), [(0.03, 0.01), (0.27, 0.01), (0.5, 0.01), (0.75, 0.01), (0.9, 0.03)])
def test_blocks_and_not_the_completion_fill_the_budget(
    ratio: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[Tensor] = []

    def complete(mask: Tensor, remaining: Tensor, start: Tensor) -> Tensor:
        left.append(remaining)
        return mask

    monkeypatch.setattr(samplers, "_complete", complete)
    budget = int(ratio * 196)
    draw("blockwise", 2000, (14, 14), budget)
    assert left[0].mean().item() < share * budget
