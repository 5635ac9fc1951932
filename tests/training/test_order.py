"""Order and seeds are pure functions: they repeat, they do not collide, and every share of a step is somebody's."""

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mjp
from mjp.common.seeds import PLAN, SAMPLE, STEP, derive_seed
from mjp.method.shuffle import sample_spp_plan
from mjp.training.order import Batches, epoch_length, epoch_order, rows_of


def batches(order: list[int], *, rank: int = 0, world: int = 1, accumulate: int = 1, start: int = 0) -> Batches:
    return Batches(order, seed=5, epoch=2, batch=4, accumulate=accumulate, rank=rank, world=world, start=start)


def test_seeds_of_small_numbers_do_not_collide() -> None:
    grid = list(product(range(12), range(12), range(12), (SAMPLE, STEP, PLAN)))
    assert len({derive_seed(*parts) for parts in grid}) == len(grid)


def test_seeds_tell_the_order_and_the_number_of_their_parts() -> None:
    assert len({derive_seed(*parts) for parts in [(), (0,), (0, 0), (1, 0), (0, 1), (1,), (1, 1)]}) == 7


@given(st.lists(st.integers(-(2**70), 2**70), max_size=5))
def test_seeds_fit_every_generator(parts: list[int]) -> None:
    assert 0 <= derive_seed(*parts) < 2**63


@pytest.mark.parametrize("size", [1, 10, 300])
def test_an_epoch_shows_every_picture_once(size: int) -> None:
    assert sorted(epoch_order(range(size), 0, 0, 1)) == list(range(size))


def test_the_order_depends_on_seed_and_epoch_only() -> None:
    orders = [tuple(epoch_order(range(50), seed, epoch, 1)) for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(orders)) == 4
    assert orders[1] == tuple(epoch_order(range(50), 0, 1, 1))


@pytest.mark.parametrize("size", [30, 255, 256, 600])
@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_an_epoch_has_the_length_it_announces(size: int, repeats: int) -> None:
    assert len(epoch_order(range(size), 0, 0, repeats)) == epoch_length(size, repeats)


@pytest.mark.parametrize("size", [30, 300])
def test_repeated_augmentation_shows_each_picture_three_times_in_a_row(size: int) -> None:
    order = epoch_order(range(size), 0, 0, 3)
    groups = [order[i : i + 3] for i in range(0, len(order) // 3 * 3, 3)]
    assert all(len(set(group)) == 1 for group in groups)
    assert len({group[0] for group in groups}) == len(groups)


def test_repeats_of_a_picture_are_augmented_differently() -> None:
    (first, one), (second, two), *_ = next(iter(batches(epoch_order(range(30), 0, 0, 3))))
    assert first == second
    assert one != two


def test_a_picture_is_augmented_differently_in_every_epoch_and_with_every_seed() -> None:
    def seeds(seed: int, epoch: int) -> set[int]:
        first = Batches([7] * 4, seed=seed, epoch=epoch, batch=4, accumulate=1, rank=0, world=1, start=0)
        return {seed for _, seed in next(iter(first))}

    assert len(seeds(0, 0) | seeds(0, 1) | seeds(1, 0) | seeds(1, 1)) == 16


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 100))
def test_the_shares_of_all_processes_and_micro_batches_are_a_whole_step(
    world: int, accumulate: int, spare: int
) -> None:
    order = list(range(1000, 1000 + 3 * 4 * world * accumulate + spare))
    parts = [batches(order, rank=rank, world=world, accumulate=accumulate) for rank in range(world)]
    loaded = [list(part) for part in parts]
    size = 4 * world * accumulate
    for step in range(parts[0].steps):
        mine = [x for part in loaded for batch in part[step * accumulate : (step + 1) * accumulate] for x in batch]
        assert sorted(number for number, _ in mine) == order[step * size : (step + 1) * size]
    assert all(len(part) == len(batches_of_rank) for part, batches_of_rank in zip(parts, loaded, strict=True))


def test_two_processes_load_what_one_loads_in_two_micro_batches() -> None:
    order = epoch_order(range(40), 0, 0, 1)
    left, right = (list(batches(order, rank=rank, world=2)) for rank in (0, 1))
    alone = list(batches(order, accumulate=2))
    assert alone == [batch for pair in zip(left, right, strict=True) for batch in pair]


def test_micro_batches_together_hold_the_rows_of_one_large_batch() -> None:
    order = epoch_order(range(40), 0, 0, 1)
    large = next(iter(Batches(order, seed=5, epoch=2, batch=8, accumulate=1, rank=0, world=1, start=0)))
    small = batches(order, accumulate=2)
    for micro, rows in zip((0, 1), small, strict=False):
        assert rows == large[small.share(micro) :: small.shares]


@given(st.integers(0, 5))
def test_a_resumed_epoch_is_the_tail_of_the_whole_one(start: int) -> None:
    order = epoch_order(range(48), 0, 0, 3)
    whole, tail = batches(order, accumulate=2), batches(order, accumulate=2, start=start)
    assert list(tail) == list(whole)[2 * start :]
    assert len(tail) == len(list(tail))


def plans() -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [
        mjp.sample_plan(12, (4, 4), 0.5, generator=generator),
        sample_spp_plan(12, (4, 4), 4, generator=generator, shared=False),
        mjp.identity_plan(12, (4, 4)),
    ]


@pytest.mark.parametrize("plan", plans(), ids=["jigsaw", "spp", "identity"])
@pytest.mark.parametrize("shares", [1, 2, 3])
def test_the_rows_of_all_shares_are_the_whole_plan(plan: Any, shares: int) -> None:
    parts = [rows_of(plan, share, shares) for share in range(shares)]
    for name in ("mask", "permutation", "inverse", "pixels"):
        whole = getattr(plan, name)
        if whole is None:
            assert all(getattr(part, name) is None for part in parts)
            continue
        together = torch.empty_like(whole.contiguous())
        for share, part in enumerate(parts):
            together[share::shares] = getattr(part, name)
        assert torch.equal(together, whole)
    assert all((part.grid, part.budget) == (plan.grid, plan.budget) for part in parts)
