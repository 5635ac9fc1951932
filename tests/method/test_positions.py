"""Position embeddings of masked slots."""

import torch
from hypothesis import given
from hypothesis import strategies as st

import mjp
from method.tiny import generator, half_masked
from mjp.method.positions import hide_positions, token_mask


def test_masked_slots_get_the_one_unknown_vector_and_the_others_keep_theirs() -> None:
    table, unknown = torch.randn(1, 16, 5, generator=generator()), torch.full((5,), 7.0)
    mask = half_masked(3).mask
    hidden = hide_positions(table, unknown, mask)
    assert hidden.shape == (3, 16, 5)
    for image in range(3):
        for slot in range(16):
            assert torch.equal(hidden[image, slot], unknown if mask[image, slot] else table[0, slot])


def test_masked_rows_get_a_gradient_of_exactly_zero_and_unknown_gets_theirs() -> None:
    table = torch.randn(1, 16, 5, generator=generator(), requires_grad=True)
    unknown = torch.zeros(5, requires_grad=True)
    mask, weights = half_masked(1).mask, torch.randn(1, 16, 5, generator=generator(1))
    (hide_positions(table, unknown, mask) * weights).sum().backward()
    assert table.grad is not None
    assert unknown.grad is not None
    assert (table.grad[mask] == 0).all()
    assert torch.equal(table.grad[~mask], weights[~mask])
    assert torch.allclose(unknown.grad, weights[mask].sum(0))


def test_nothing_of_a_hidden_row_gets_out() -> None:
    """Arithmetic such as (1 − m)·E + m·u would let infinities and NaN of a masked row through."""
    table, unknown = torch.full((1, 4, 2), torch.nan), torch.ones(2)
    assert torch.equal(hide_positions(table, unknown, torch.ones(1, 4, dtype=torch.bool)), torch.ones(1, 4, 2))


def test_hide_positions_has_the_right_gradient() -> None:
    table = torch.randn(1, 6, 3, generator=generator(), dtype=torch.float64, requires_grad=True)
    unknown = torch.randn(3, generator=generator(), dtype=torch.float64, requires_grad=True)
    mask = half_masked(2, (2, 3)).mask
    assert torch.autograd.gradcheck(lambda t, u: hide_positions(t, u, mask), (table, unknown))


def test_hide_positions_compiles_into_one_graph() -> None:
    table, unknown, mask = torch.randn(1, 16, 5, generator=generator()), torch.ones(5), half_masked(3).mask
    compiled = torch.compile(hide_positions, backend="eager", fullgraph=True)
    assert torch.equal(compiled(table, unknown, mask), hide_positions(table, unknown, mask))


@given(
    grid=st.tuples(st.integers(1, 5), st.integers(1, 5)), rows=st.integers(1, 4), columns=st.integers(1, 4),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_token_mask_repeats_a_cell_for_all_its_tokens(
    grid: tuple[int, int], rows: int, columns: int, seed: int
) -> None:
    plan = half_masked(2, grid, seed, ratio=1.0 if grid == (1, 1) else 0.5)
    mask = token_mask(plan, (rows, columns)).view(2, grid[0] * rows, grid[1] * columns)
    for row in range(grid[0] * rows):
        for column in range(grid[1] * columns):
            cell = (row // rows) * grid[1] + column // columns
            assert torch.equal(mask[:, row, column], plan.mask[:, cell])


def test_token_mask_of_an_identity_plan_is_one_empty_row() -> None:
    mask = token_mask(mjp.identity_plan(5, (2, 2)), (2, 3))
    assert mask.shape == (1, 24)
    assert not mask.any()
