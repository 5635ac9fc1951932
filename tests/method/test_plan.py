"""Plans: exact budget, true permutations, one source of randomness, no waiting for the device."""

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import mjp
from method.tiny import CountOperators, generator
from mjp.method.plan import check_plan

SAMPLERS = ("blockwise", "reference", "uniform")
GRIDS = st.tuples(st.integers(1, 12), st.integers(1, 12))
SEEDS = st.integers(0, 2**63 - 1)


def plan_of(grid: tuple[int, int], ratio: float, *, batch: int = 4, seed: int = 0, **options: Any) -> mjp.Plan:
    return mjp.sample_plan(batch, grid, ratio, generator=generator(seed), **options)


def same(one: mjp.Plan, other: mjp.Plan) -> bool:
    tensors = all(torch.equal(a, b) for a, b in zip(one[:3], other[:3], strict=True))
    return tensors and one.grid == other.grid and one.budget == other.budget


def cells(plan: mjp.Plan) -> Tensor:
    return torch.arange(plan.mask.shape[1]).expand_as(plan.mask)


# --- cardinality ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["blockwise", "uniform"])
@given(grid=GRIDS, ratio=st.floats(0, 1), seed=SEEDS, shared=st.booleans(), derangement=st.booleans())
def test_masks_the_floor_of_ratio_times_cells(
    sampler: str, grid: tuple[int, int], ratio: float, seed: int, shared: bool, derangement: bool
) -> None:
    plan = plan_of(grid, ratio, seed=seed, sampler=sampler, shared=shared, derangement=derangement)
    expected = math.floor(ratio * grid[0] * grid[1] + 1e-9)
    assert plan.mask.shape == (4, grid[0] * grid[1])
    assert plan.mask.sum(1).tolist() == [expected] * 4


@pytest.mark.parametrize("grid", [(1, 100), (100, 1), (10, 10), (4, 25), (14, 14), (7, 9)])
def test_budget_of_decimal_ratios_is_exact(grid: tuple[int, int]) -> None:
    """0.29 of 100 cells is 29, although 0.29 * 100 is 28.999... in floating point."""
    for percent in range(101):
        plan = plan_of(grid, percent / 100, batch=1, sampler="uniform")
        assert int(plan.mask.sum()) == percent * grid[0] * grid[1] // 100


def test_masked_budget_of_the_paper() -> None:
    assert plan_of((14, 14), 0.03).mask.sum(1).tolist() == [5] * 4
    assert plan_of((14, 14), 0.27).mask.sum(1).tolist() == [52] * 4


# --- permutations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS)
@given(grid=GRIDS, ratio=st.floats(0, 1), seed=SEEDS, shared=st.booleans(), derangement=st.booleans())
def test_permutes_the_masked_cells_among_themselves(
    sampler: str, grid: tuple[int, int], ratio: float, seed: int, shared: bool, derangement: bool
) -> None:
    plan = plan_of(grid, ratio, seed=seed, sampler=sampler, shared=shared, derangement=derangement)
    slots = cells(plan)
    assert torch.equal(plan.permutation.sort(1).values, slots)  # a bijection
    assert torch.equal(plan.permutation.gather(1, plan.inverse), slots)
    assert torch.equal(plan.inverse.gather(1, plan.permutation), slots)
    assert torch.equal(plan.mask.gather(1, plan.permutation), plan.mask)  # masked slots receive masked patches
    assert torch.equal(plan.permutation[~plan.mask], slots[~plan.mask])  # the others keep theirs
    assert int(plan.mask.sum(1).max()) <= plan.budget


@pytest.mark.parametrize("sampler", SAMPLERS)
@given(grid=GRIDS, ratio=st.floats(0, 1), seed=SEEDS)
def test_derangement_leaves_no_masked_patch_in_place(
    sampler: str, grid: tuple[int, int], ratio: float, seed: int
) -> None:
    plan = plan_of(grid, ratio, seed=seed, sampler=sampler, derangement=True)
    has_company = plan.mask & (plan.mask.sum(1, keepdim=True) >= 2)
    assert not (has_company & (plan.permutation == cells(plan))).any()


def test_derangement_moves_all_masked_patches_of_images_with_different_counts() -> None:
    """No, one, two, ... masked cells in one batch, and a budget that is larger than any of them needs."""
    mask = torch.stack([torch.randperm(9, generator=generator(seed)) < seed % 10 for seed in range(200)])
    plan = mjp.plan_from_mask(mask, (3, 3), generator=generator(), derangement=True)
    counts, moved = mask.sum(1), (plan.permutation != cells(plan)).sum(1)
    assert torch.equal(plan.permutation.sort(1).values, cells(plan))
    assert torch.equal(moved, torch.where(counts >= 2, counts, 0))


def test_derangement_copes_with_the_empty_masks_of_the_authors_sampler() -> None:
    plan = plan_of((14, 14), 0.03, batch=1000, sampler="reference", derangement=True)
    counts = plan.mask.sum(1)
    assert {0, 3, 4, 5} <= set(counts.tolist())
    assert torch.equal((plan.permutation != cells(plan)).sum(1), counts)


def test_derangement_of_two_masked_cells_swaps_them() -> None:
    mask = torch.tensor([[False, True, False, True]])
    plan = mjp.plan_from_mask(mask, (2, 2), generator=generator(), derangement=True)
    assert plan.permutation.tolist() == [[0, 3, 2, 1]]


@pytest.mark.parametrize(("derangement", "outcomes"), [(False, 24), (True, 6)])
def test_permutation_is_uniform(derangement: bool, outcomes: int) -> None:
    """All orders of four masked cells (with derangement: all cycles) are equally likely."""
    mask = torch.tensor([True, False, True, True, False, True]).expand(24_000, -1)
    plan = mjp.plan_from_mask(mask, (2, 3), generator=generator(), derangement=derangement)
    codes = (plan.permutation * 6 ** torch.arange(6)).sum(1)
    observed = torch.unique(codes, return_counts=True)[1].double()
    expected = 24_000 / outcomes
    assert len(observed) == outcomes
    assert float(((observed - expected) ** 2 / expected).sum()) < {24: 62, 6: 29}[outcomes]  # by chance once in 40,000


@given(grid=GRIDS, seed=SEEDS, ratio=st.floats(0, 1))
def test_inverted_twice_is_the_plan_itself(grid: tuple[int, int], seed: int, ratio: float) -> None:
    plan = plan_of(grid, ratio, seed=seed)
    assert same(plan.inverted().inverted(), plan)
    assert torch.equal(plan.inverted().permutation, plan.inverse)


@given(grid=GRIDS, seed=SEEDS, data=st.data())
def test_plan_from_mask_keeps_any_mask(grid: tuple[int, int], seed: int, data: st.DataObject) -> None:
    size = grid[0] * grid[1]
    rows = data.draw(st.lists(st.lists(st.booleans(), min_size=size, max_size=size), min_size=1, max_size=3))
    mask = torch.tensor(rows)
    plan = mjp.plan_from_mask(mask, grid, generator=generator(seed))
    assert torch.equal(plan.mask, mask)
    assert torch.equal(plan.permutation.sort(1).values, cells(plan))
    assert torch.equal(plan.permutation[~mask], cells(plan)[~mask])


# --- shared, probability, nothing at all ------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_shared_gives_all_images_the_same_jigsaw(sampler: str) -> None:
    plan = plan_of((14, 14), 0.3, batch=8, sampler=sampler, shared=True)
    for tensor in plan[:3]:
        assert (tensor == tensor[:1]).all()
    assert plan.mask.any()


def test_not_shared_gives_every_image_its_own() -> None:
    plan = plan_of((14, 14), 0.3, batch=8)
    assert len(torch.unique(plan.mask, dim=0)) == 8


def test_images_with_the_same_mask_get_different_orders() -> None:
    plan = plan_of((4, 4), 1.0, batch=8)
    assert len(torch.unique(plan.permutation, dim=0)) == 8


def test_probability_zero_masks_nothing() -> None:
    plan = plan_of((14, 14), 0.5, probability=0.0)
    assert not plan.mask.any()
    assert torch.equal(plan.permutation, cells(plan))


def test_probability_one_half_masks_about_half_the_batches_and_each_as_a_whole() -> None:
    source = generator()
    counts = [
        mjp.sample_plan(3, (4, 4), 0.5, generator=source, probability=0.5, sampler="uniform").mask.sum(1).tolist()
        for _ in range(1000)
    ]
    assert all(count in ([0, 0, 0], [8, 8, 8]) for count in counts)
    active = sum(count == [8, 8, 8] for count in counts)
    assert abs(active - 500) < 4 * math.sqrt(250)


def test_ratio_zero_is_the_identity_and_draws_nothing() -> None:
    source = generator()
    before = source.get_state()
    plan = mjp.sample_plan(2, (4, 4), 0.0, generator=source)
    assert torch.equal(source.get_state(), before)
    assert same(plan, mjp.identity_plan(2, (4, 4)))


def test_identity_plan_masks_and_moves_nothing() -> None:
    plan = mjp.identity_plan(3, (2, 5))
    assert not plan.mask.any()
    assert torch.equal(plan.permutation, cells(plan))
    assert torch.equal(plan.inverse, cells(plan))
    assert (plan.grid, plan.budget) == ((2, 5), 0)


# --- randomness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_same_seed_same_plan(sampler: str) -> None:
    options: dict[str, Any] = {"sampler": sampler, "probability": 0.9, "derangement": True}
    assert same(plan_of((14, 14), 0.3, seed=5, **options), plan_of((14, 14), 0.3, seed=5, **options))
    assert not same(plan_of((14, 14), 0.3, seed=5, **options), plan_of((14, 14), 0.3, seed=6, **options))


def test_one_generator_gives_a_new_plan_each_time() -> None:
    source = generator()
    plans = [mjp.sample_plan(2, (14, 14), 0.3, generator=source) for _ in range(2)]
    assert not same(*plans)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_global_random_states_are_neither_read_nor_changed(sampler: str) -> None:
    def states() -> tuple[list[int], Any, list[int]]:
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002

    torch.manual_seed(1)
    random.seed(1)
    before = states()
    one = plan_of((8, 8), 0.3, sampler=sampler, probability=0.9)
    assert states() == before
    torch.manual_seed(2)
    random.seed(2)
    np.random.seed(2)  # noqa: NPY002
    assert same(one, plan_of((8, 8), 0.3, sampler=sampler, probability=0.9))


# --- on the device ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("derangement", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_loop_over_images_and_no_waiting_for_the_device(sampler: str, shared: bool, derangement: bool) -> None:
    """As many operators for 512 images as for 2, none of which brings a value to the host."""
    counts = []
    for batch in (2, 512):
        source = generator()
        with CountOperators() as operators:
            mjp.sample_plan(
                batch, (8, 8), 0.3, generator=source, sampler=sampler, shared=shared, derangement=derangement,
                probability=0.5,
            )  # fmt: skip
        counts.append(operators.count)
    assert counts[0] == counts[1] > 10


def test_no_loop_over_patches_once_the_blocks_are_placed() -> None:
    counts = []
    for grid in ((4, 4), (40, 40)):
        mask = torch.rand(2, grid[0] * grid[1], generator=generator()) < 0.5
        source = generator()
        with CountOperators() as operators:
            mjp.plan_from_mask(mask, grid, generator=source)
        counts.append(operators.count)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_draws_without_looking_at_any_value(sampler: str) -> None:
    """Fake tensors have shapes and no values: code that needs a value on the host fails on them."""
    with FakeTensorMode():
        plan = mjp.sample_plan(
            4, (8, 8), 0.3, generator=torch.Generator(), sampler=sampler, probability=0.5, derangement=True
        )
    assert plan.permutation.shape == (4, 64)
    assert plan.permutation.dtype == torch.int64


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_plan_moves_to_the_device_asked_for(ratio: float) -> None:
    plan = plan_of((4, 4), ratio, device="meta")
    assert {tensor.device.type for tensor in plan[:3]} == {"meta"}


def test_to_moves_all_parts() -> None:
    plan = plan_of((4, 4), 0.5)._replace(pixels=torch.arange(4).expand(4, -1)).to("meta")
    assert plan.pixels is not None
    assert {tensor.device.type for tensor in (*plan[:3], plan.pixels)} == {"meta"}


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"ratio": -0.01}, "ratio"),
        ({"ratio": 1.01}, "ratio"),
        ({"ratio": math.nan}, "ratio"),
        ({"ratio": math.inf}, "ratio"),
        ({"probability": -0.1}, "probability"),
        ({"probability": 1.5}, "probability"),
        ({"probability": math.nan}, "probability"),
        ({"grid": (0, 4)}, "grid"),
        ({"grid": (4, -1)}, "grid"),
        ({"grid": (4,)}, "grid"),
        ({"grid": (4, 4, 4)}, "grid"),
        ({"grid": (4.0, 4.0)}, "grid"),
        ({"batch": 0}, "batch"),
        ({"batch": -3}, "batch"),
        ({"min_block": 0}, "min_block"),
        ({"aspect": (0.0, 1.0)}, "aspect"),
        ({"aspect": (2.0, 1.0)}, "aspect"),
        ({"aspect": (math.nan, 1.0)}, "aspect"),
        ({"aspect": (1.0, math.inf)}, "aspect"),
        ({"sampler": "spiral"}, "sampler.*blockwise, reference, uniform"),
    ],
)
def test_bad_arguments_are_named_and_draw_nothing(changes: dict[str, Any], names: str) -> None:
    source = generator()
    before = source.get_state()
    with pytest.raises(mjp.InputError, match=names):
        mjp.sample_plan(**{"batch": 2, "grid": (4, 4), "ratio": 0.5, **changes}, generator=source)
    assert torch.equal(source.get_state(), before)


@pytest.mark.parametrize(
    "mask", [torch.zeros(2, 15, dtype=torch.bool), torch.zeros(16, dtype=torch.bool), torch.zeros(2, 16)]
)
def test_plan_from_mask_refuses_what_is_not_a_mask_of_the_grid(mask: Tensor) -> None:
    with pytest.raises(mjp.InputError, match=r"mask must be bool of shape \(batch, 16\)"):
        mjp.plan_from_mask(mask, (4, 4), generator=generator())


@pytest.mark.parametrize(("batch", "grid", "names"), [(3, (4, 4), "batch"), (2, (2, 8), "grid"), (2, (4, 5), "grid")])
def test_a_plan_for_another_batch_or_grid_is_refused(batch: int, grid: tuple[int, int], names: str) -> None:
    with pytest.raises(mjp.InputError, match=names):
        check_plan(plan_of((4, 4), 0.5, batch=2), batch, grid, torch.device("cpu"))


def test_a_plan_on_another_device_is_refused() -> None:
    with pytest.raises(mjp.InputError, match=r"plan is on cpu, the input on meta: plan\.to"):
        check_plan(plan_of((4, 4), 0.5, batch=2), 2, (4, 4), torch.device("meta"))


@pytest.mark.parametrize("plan", [None, "plan", {}, torch.zeros(2, 16)])
def test_what_is_not_a_plan_is_refused(plan: Any) -> None:
    with pytest.raises(mjp.InputError, match="plan must be a Plan"):
        mjp.shuffle_tokens(torch.zeros(2, 16, 3), plan)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"batch": 2.5}, "batch"),
        ({"batch": "4"}, "batch"),
        ({"batch": True}, "batch"),
        ({"grid": 4}, "grid"),
        ({"grid": (True, 4)}, "grid"),
        ({"ratio": "0.5"}, "ratio"),
        ({"ratio": None}, "ratio"),
        ({"generator": None}, "generator must be a torch.Generator"),
        ({"device": "foo"}, "device"),
        ({"min_block": "8"}, "min_block"),
        ({"aspect": (1.0,)}, "aspect"),
        ({"aspect": (1, 2, 3)}, "aspect"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused_by_name(changes: dict[str, Any], names: str) -> None:
    arguments: dict[str, Any] = {"batch": 2, "grid": (4, 4), "ratio": 0.5, "generator": torch.Generator(), **changes}
    with pytest.raises(mjp.InputError, match=names):
        mjp.sample_plan(arguments.pop("batch"), arguments.pop("grid"), arguments.pop("ratio"), **arguments)


def test_numpy_numbers_are_numbers() -> None:
    plan = mjp.sample_plan(np.int64(2), (np.int64(4), 4), np.float32(0.5), generator=torch.Generator())  # type: ignore[arg-type]
    assert plan.mask.sum(1).tolist() == [8, 8]


def test_plan_from_mask_without_a_generator_is_refused() -> None:
    mask = torch.ones(1, 16, dtype=torch.bool)
    with pytest.raises(mjp.InputError, match="generator must be a torch"):
        mjp.plan_from_mask(mask, (4, 4), generator=None)  # type: ignore[arg-type]
