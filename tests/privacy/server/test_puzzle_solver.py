"""The jigsaw solver: exact where it says so, and good at pictures whose borders fit."""

from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.method.plan import Plan, plan_from_mask, sample_plan
from mjp.method.shuffle import shuffle_image
from mjp.pictures.sets import embedded
from mjp.privacy.server import puzzle_solver as jigsaw
from mjp.privacy.server.puzzle_solver import Solution, border_costs, solve


def smooth(size: int = 64, seed: int = 0) -> Tensor:
    """A picture without edges: colours that change slowly, differently everywhere, and a little noise."""
    draws = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 3, 7, 7, generator=draws)
    fine = torch.nn.functional.interpolate(coarse, (size, size), mode="bicubic", align_corners=True)[0]
    return (fine + 0.002 * torch.randn(fine.shape, generator=draws)).clamp(0, 1)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shuffled(picture: Tensor, mask: Tensor, patch: int, seed: int = 0) -> tuple[Tensor, Plan]:
    side = picture.shape[-1] // patch
    plan = plan_from_mask(mask[None], (side, side), generator=seeded(seed), derangement=True)
    return shuffle_image(picture[None], plan, patch)[0], plan


def right_places(solution: Solution, plan: Plan) -> float:
    """Share of the masked slots whose own piece is back."""
    origin = plan.permutation[0][solution.order]
    return (origin == torch.arange(len(origin)))[plan.mask[0]].double().mean().item()


def test_border_costs_by_hand() -> None:
    ramp = torch.arange(8.0).div(10).view(1, 8, 1).expand(4, 8, 3)  # rises by .1 from left to right
    a, b = ramp[:, :4], ramp[:, 4:]
    costs = border_costs(torch.stack([a, b]))
    assert costs[0, 0, 1].item() == pytest.approx(0, abs=1e-4)  # b continues a: both ways without surprise
    # a to the right of b: .0 where .8 is foretold, and .7 where −.1 is; the steps vary by nothing but the floor
    one_way = 4 * 3 * torch.log1p(torch.tensor(3 * 0.8**2 / 1e-5 / 3)).item()  # 4 pixels, 3 degrees of freedom
    assert costs[0, 1, 0].item() == pytest.approx(2 * one_way, rel=1e-4)


def test_border_costs_agree_from_either_side_and_between_directions() -> None:
    pieces = torch.rand(5, 4, 4, 3, generator=seeded())
    right, left, below, above = border_costs(pieces)
    assert torch.equal(left, right.T)
    assert torch.equal(above, below.T)
    turned = border_costs(pieces.transpose(1, 2))
    assert torch.allclose(turned[0], below)
    mirrored = border_costs(pieces.flip(2))
    assert torch.allclose(mirrored[0], left, rtol=1e-4)


@pytest.mark.parametrize("cells", [[9, 12, 30, 45, 47], [9, 10], [9, 10, 17, 18, 19]])
def test_few_pieces_go_back_exactly(cells: list[int]) -> None:
    picture, mask = smooth(), torch.zeros(64, dtype=torch.bool)
    mask[cells] = True  # apart, two that touch, a cluster
    mixed, plan = shuffled(picture, mask, 8)
    solution = solve(mixed, 8, mask, generator=seeded())
    assert right_places(solution, plan) == 1
    assert torch.equal(solution.picture, picture)
    assert torch.equal(solution.order, plan.inverse[0])


@pytest.mark.parametrize("cells", [[0, 2, 8, 10, 5], [0, 1, 5, 6, 10]])
def test_exact_means_that_no_other_order_costs_less(cells: list[int]) -> None:
    noise, mask = torch.rand(3, 16, 16, generator=seeded(3)), torch.zeros(16, dtype=torch.bool)
    mask[cells] = True  # without and with common borders; noise has no order that could be guessed
    found = solve(noise, 4, mask, generator=seeded())
    pieces = noise.reshape(3, 4, 4, 4, 4).permute(1, 3, 2, 4, 0).reshape(16, 4, 4, 3)
    right, _, below, _ = border_costs(pieces)
    least = float("inf")
    for choice in permutations(cells):
        order = torch.arange(16)
        order[cells] = torch.tensor(choice)
        board = order.view(4, 4)
        cost = right[board[:, :-1], board[:, 1:]].sum() + below[board[:-1], board[1:]].sum()
        least = min(least, cost.item())
    assert found.cost == pytest.approx(least, rel=1e-5)


@pytest.mark.parametrize("ratio", [0.27, 0.6, 0.9])
def test_a_block_of_many_pieces_goes_back(ratio: float) -> None:
    picture = smooth()
    plan = sample_plan(1, (8, 8), ratio, generator=seeded(1))
    mixed = shuffle_image(picture[None], plan, 8)[0]
    solution = solve(mixed, 8, plan.mask[0], generator=seeded(), rounds=10)
    assert right_places(solution, plan) == 1
    assert torch.equal(solution.picture, picture)


def test_a_picture_goes_back_with_nothing_held_in_place() -> None:
    picture, mask = smooth(48), torch.ones(36, dtype=torch.bool)
    mixed, plan = shuffled(picture, mask, 8)
    solution = solve(mixed, 8, generator=seeded(), rounds=10)
    assert right_places(solution, plan) == 1


def test_tearing_down_and_growing_again_puts_most_of_a_photograph_back() -> None:
    pictures, found = embedded("val"), []
    for number in (0, 4, 6):
        photograph = torch.from_numpy(np.array(pictures.load(number))).permute(2, 0, 1) / 255
        mixed, plan = shuffled(photograph, torch.ones(64, dtype=torch.bool), 4)
        found.append([right_places(solve(mixed, 4, generator=seeded(), rounds=n), plan) for n in (0, 15)])
    before, after = torch.tensor(found).mean(0).tolist()
    assert before < 0.7
    assert after > 0.9


def test_reassigning_slots_that_do_not_touch_never_costs_more() -> None:
    puzzle = jigsaw._puzzle(torch.rand(3, 32, 32, generator=seeded()), 4, torch.rand(64, generator=seeded(1)) < 0.8)
    generator, order = seeded(2), torch.arange(64)
    for _ in range(20):
        slots = jigsaw._apart(puzzle, generator)
        assert torch.isin(slots, puzzle.free).all()
        assert not torch.isin(puzzle.neighbours[slots], slots).any()
        before, order = order, jigsaw._reassigned(order, slots, puzzle)
        assert jigsaw.total_cost(order, puzzle) <= jigsaw.total_cost(before, puzzle) + 1e-2


def test_unmasked_pieces_never_move_and_no_piece_is_lost() -> None:
    noise = torch.rand(3, 32, 32, generator=seeded())
    mask = torch.rand(64, generator=seeded(1)) < 0.5
    order = solve(noise, 4, mask, generator=seeded(), rounds=2).order
    assert torch.equal(order[~mask], torch.arange(64)[~mask])
    assert order.sort().values.tolist() == list(range(64))


def test_nothing_to_move_moves_nothing() -> None:
    picture = smooth(32)
    for cells in ([], [5]):
        mask = torch.zeros(16, dtype=torch.bool)
        mask[cells] = True
        assert torch.equal(solve(picture, 8, mask, generator=seeded()).picture, picture)


def test_one_seed_one_solution_and_more_rounds_never_cost_more() -> None:
    noise = torch.rand(3, 32, 32, generator=seeded())
    first, again = (solve(noise, 4, generator=seeded(), rounds=2) for _ in range(2))
    assert torch.equal(first.order, again.order)
    assert solve(noise, 4, generator=seeded(), rounds=6).cost <= first.cost


def test_flat_and_overexposed_pictures_are_solved_without_complaint() -> None:
    flat = torch.full((3, 32, 32), 0.5)
    assert torch.equal(solve(flat, 4, generator=seeded(), rounds=1).picture, flat)
    wild = 1e6 * torch.randn(3, 32, 32, generator=seeded())
    assert sorted(solve(wild, 4, generator=seeded(), rounds=1).order.tolist()) == list(range(64))


def test_bad_input_is_refused() -> None:
    picture = smooth(32)
    with pytest.raises(InputError, match="finite"):
        solve(picture.clone().fill_(torch.nan), 8, generator=seeded())
    with pytest.raises(InputError, match="RGB"):
        solve(picture[:1], 8, generator=seeded())
    with pytest.raises(InputError, match="divide"):
        solve(picture, 7, generator=seeded())
    with pytest.raises(InputError, match="2 pixels"):
        solve(picture, 1, generator=seeded())
    with pytest.raises(InputError, match="mask"):
        solve(picture, 8, torch.ones(15, dtype=torch.bool), generator=seeded())
    with pytest.raises(InputError, match="generator"):
        solve(picture, 8, generator=0)  # type: ignore[arg-type]
