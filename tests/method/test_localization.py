"""Dense absolute localization against slow and foreign oracles."""

import math
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import l1_loss

import mjp
from method.tiny import generator
from mjp.method.localization import grid_targets, principal_directions, read_principal

CPU = torch.device("cpu")


def targets_of(rows: int, columns: int, *, unit: bool = False) -> Tensor:
    return grid_targets((rows, columns), unit=unit, device=CPU).double()


def slow_loss(predictions: Tensor, rows: int, columns: int, mask: Tensor) -> float:
    """The mean of |(i, j) − g|₁ over images and visible positions, one at a time."""
    terms = []
    for image in mask.tolist():
        for i in range(rows):
            for j in range(columns):
                if not image[i * columns + j]:
                    x, y = predictions[i * columns + j].tolist()
                    terms.append(abs(i - x) + abs(j - y))
    return math.fsum(terms) / len(terms) if terms else 0.0


def clear_table(rows: int, columns: int, width: int, seed: int = 0) -> Tensor:
    """A table with two dominant directions that carry row and column, and some noise."""
    source = generator(seed)
    position = targets_of(rows, columns) - targets_of(rows, columns).mean(0)
    directions = torch.linalg.qr(torch.randn(width, 2, generator=source, dtype=torch.float64)).Q
    mixing = torch.tensor([[3.0, 0.5], [-0.4, 1.5]], dtype=torch.float64)
    noise = torch.randn(rows * columns, width, generator=source, dtype=torch.float64)
    return position @ mixing @ directions.T + 0.1 * noise + 5.0


# --- targets ----------------------------------------------------------------------------------------------------------


def test_grid_targets_count_rows_and_columns_in_reading_order() -> None:
    assert targets_of(2, 3).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


def test_unit_targets_run_from_zero_to_one() -> None:
    assert targets_of(2, 3, unit=True).tolist() == [[0, 0], [0, 0.5], [0, 1], [1, 0], [1, 0.5], [1, 1]]


def test_unit_targets_of_a_single_row_are_finite() -> None:
    assert targets_of(1, 3, unit=True).tolist() == [[0, 0], [0, 0.5], [0, 1]]


# --- loss -------------------------------------------------------------------------------------------------------------


@given(rows=st.integers(1, 6), columns=st.integers(1, 6), batch=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_loss_equals_a_loop_over_images_and_positions(rows: int, columns: int, batch: int, seed: int) -> None:
    source = generator(seed)
    predictions = torch.randn(rows * columns, 2, generator=source, dtype=torch.float64)
    density = torch.rand(batch, 1, generator=source)
    mask = torch.rand(batch, rows * columns, generator=source) < density
    loss = mjp.localization_loss(predictions, targets_of(rows, columns), mask)
    assert float(loss) == pytest.approx(slow_loss(predictions, rows, columns, mask), rel=1e-12, abs=1e-12)


def test_the_authors_code_takes_the_mean_over_coordinates() -> None:
    """torch's own l1_loss is what their code calls; the paper's norm is twice as large."""
    predictions = torch.randn(6, 2, generator=generator(), dtype=torch.float64)
    targets, visible = targets_of(2, 3), torch.zeros(1, 6, dtype=torch.bool)
    theirs = mjp.localization_loss(predictions, targets, visible, reduction="mean")
    assert float(theirs) == pytest.approx(float(l1_loss(predictions, targets)), rel=1e-12)
    assert float(mjp.localization_loss(predictions, targets, visible)) == pytest.approx(2 * float(theirs), rel=1e-12)


def test_masked_positions_do_not_count() -> None:
    predictions, targets = torch.zeros(4, 2), targets_of(2, 2).float()
    predictions[3] = 1e6
    hidden = torch.tensor([[False, False, False, True]])
    assert float(mjp.localization_loss(predictions, targets, hidden)) == pytest.approx(2 / 3)


def test_everything_masked_gives_zero_loss_and_zero_finite_gradients() -> None:
    predictions = torch.randn(4, 2, generator=generator(), requires_grad=True)
    loss = mjp.localization_loss(predictions, targets_of(2, 2).float(), torch.ones(3, 4, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0
    assert predictions.grad is not None
    assert torch.equal(predictions.grad, torch.zeros(4, 2))


def test_loss_has_the_right_gradient() -> None:
    predictions = torch.randn(6, 2, generator=generator(), dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False, False, True, False, False], [False] * 6])
    assert torch.autograd.gradcheck(lambda p: mjp.localization_loss(p, targets_of(2, 3), mask), (predictions,))


def test_loss_compiles_into_one_graph() -> None:
    predictions, mask = torch.randn(6, 2, generator=generator()), torch.tensor([[True, False] * 3])
    compiled = torch.compile(mjp.localization_loss, backend="eager", fullgraph=True)
    arguments = (predictions, targets_of(2, 3).float(), mask)
    assert torch.equal(compiled(*arguments), mjp.localization_loss(*arguments))


# --- heads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "shapes"), [("ln", [(2, 8), (2,)]), ("nln", [(8, 8), (8,), (2, 8), (2,)])])
def test_learned_heads_have_the_layers_of_the_paper(kind: Literal["ln", "nln"], shapes: list[tuple[int, ...]]) -> None:
    head = mjp.Localizer(8, kind, generator=generator())
    assert [tuple(p.shape) for p in head.parameters()] == shapes
    assert head(torch.randn(6, 8, generator=generator()), targets_of(2, 3).float()).shape == (6, 2)


def test_nln_is_linear_relu_linear() -> None:
    head = mjp.Localizer(8, "nln", generator=generator())
    table = torch.randn(6, 8, generator=generator())
    first_weight, first_bias, second_weight, second_bias = head.parameters()
    expected = (table @ first_weight.T + first_bias).clamp(min=0) @ second_weight.T + second_bias
    assert torch.allclose(head(table, targets_of(2, 3).float()), expected)


def test_pca_head_has_no_parameters() -> None:
    assert list(mjp.Localizer(8, "pca", generator=generator()).parameters()) == []


@pytest.mark.parametrize("kind", ["ln", "nln", "pca"])
def test_heads_start_from_the_generator_alone(kind: Literal["ln", "nln", "pca"]) -> None:
    state = torch.get_rng_state()
    one, other = (mjp.Localizer(8, kind, generator=generator(3)) for _ in range(2))
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    if kind == "pca":
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["ln", "nln"])
def test_heads_start_as_timm_starts_linear_layers(kind: Literal["ln", "nln"]) -> None:
    """Weights of standard deviation 0.02, biases of zero: at the start the head reads the origin for every position."""
    head = mjp.Localizer(384, kind, generator=generator())
    for name, parameter in head.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        else:
            assert 0.018 < float(parameter.detach().std()) < 0.022
    table = 0.02 * torch.randn(196, 384, generator=generator(1))
    assert float(head(table, targets_of(14, 14).float()).detach().abs().max()) < 0.1


@pytest.mark.parametrize("kind", ["ln", "nln"])
def test_heads_have_the_right_gradient(kind: Literal["ln", "nln"]) -> None:
    head = mjp.Localizer(4, kind, generator=generator()).double()
    table = torch.randn(6, 4, generator=generator(), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: head(t, targets_of(2, 3)), (table,))


# --- the PCA head, well posed -----------------------------------------------------------------------------------------


def test_principal_directions_are_those_of_the_singular_value_decomposition() -> None:
    table = clear_table(5, 6, 12)
    centred = table - table.mean(0)
    start = torch.randn(12, 2, generator=generator(4), dtype=torch.float64)
    found = principal_directions(centred, start)
    expected = torch.linalg.svd(centred).Vh[:2].T
    assert torch.allclose(found.T @ found, torch.eye(2, dtype=torch.float64), atol=1e-10)
    assert torch.allclose(found @ found.T, expected @ expected.T, atol=1e-8)  # the same plane


def test_pca_prediction_is_least_squares_on_the_two_main_components() -> None:
    table, targets = clear_table(5, 6, 12), targets_of(5, 6)
    centred = table - table.mean(0)
    scores = centred @ torch.linalg.svd(centred).Vh[:2].T
    design = torch.cat([scores, torch.ones(30, 1, dtype=torch.float64)], 1)
    expected = design @ torch.linalg.lstsq(design, targets).solution
    assert torch.allclose(read_principal(table, targets), expected, atol=1e-4)


@given(seed=st.integers(0, 2**32))
def test_pca_prediction_ignores_flips_and_rotations_of_the_feature_space(seed: int) -> None:
    table, targets = clear_table(4, 5, 8), targets_of(4, 5)
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=generator(seed), dtype=torch.float64)).Q
    flips = torch.where(torch.rand(8, generator=generator(seed)) < 0.5, -1.0, 1.0).double()
    expected = read_principal(table, targets)
    assert torch.allclose(read_principal(table @ rotation, targets), expected, atol=1e-6)
    assert torch.allclose(read_principal(table * flips, targets), expected, atol=1e-6)


def test_pca_prediction_ignores_a_shift_of_the_table() -> None:
    table, targets = clear_table(4, 5, 8), targets_of(4, 5)
    assert torch.allclose(read_principal(table + 3.0, targets), read_principal(table, targets), atol=1e-8)


def test_pca_gradient_holds_directions_and_readout_fixed() -> None:
    """With constant weights the prediction is linear in the table: along the table itself, it changes by itself."""
    table, targets = clear_table(4, 5, 8).requires_grad_(), targets_of(4, 5)
    weights = torch.randn(20, 2, generator=generator(), dtype=torch.float64)
    value = ((read_principal(table, targets) - targets.mean(0)) * weights).sum()
    (gradient,) = torch.autograd.grad(value, table)
    assert torch.allclose((gradient * table).sum(), value, rtol=1e-9)


# a table of equal rows, such as the zeros with which a Swin's absolute position embedding starts, must not give NaN
@pytest.mark.parametrize("name", ["constant", "zeros", "random", "one direction"])
def test_pca_gradient_is_finite_on_degenerate_tables(name: str) -> None:
    noise = torch.randn(20, 8, generator=generator())
    table = {
        "constant": torch.full((20, 8), 0.3),
        "zeros": torch.zeros(20, 8),
        "random": noise,
        "one direction": noise[:, :1] * noise[0],
    }[name].requires_grad_()
    targets = targets_of(4, 5).float()
    loss = mjp.localization_loss(read_principal(table, targets), targets, torch.zeros(1, 20, dtype=torch.bool))
    loss.backward()
    assert torch.isfinite(loss)
    assert table.grad is not None
    assert torch.isfinite(table.grad).all()


def test_pca_localises_a_table_that_knows_its_place() -> None:
    table, targets = clear_table(5, 6, 12), targets_of(5, 6)
    visible = torch.zeros(1, 30, dtype=torch.bool)
    assert float(mjp.localization_loss(read_principal(table, targets), targets, visible)) < 0.3
    noise = torch.randn(30, 12, generator=generator(), dtype=torch.float64)
    assert float(mjp.localization_loss(read_principal(noise, targets), targets, visible)) > 1.5
