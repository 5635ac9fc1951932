"""Hidden rows of a mixture of integers, on systems made from known integers."""

import pytest
import torch
from torch import Tensor

from mjp.privacy.server.columns import Columns
from mjp.privacy.server.hidden import Mixture, uncover

pytest.importorskip("fpylll")
WIDTH, PIXELS, HIDDEN = 60, 80, 3
PAIRS = torch.stack([torch.arange(PIXELS - 1), torch.arange(1, PIXELS)])


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def integers(rows: int, seed: int) -> Tensor:
    """(rows, PIXELS) smooth levels, 0 … 255."""
    return (128 + 9 * drawn(rows, PIXELS, seed=seed).cumsum(1)).clamp(0, 255).round()


def find(rows: int, *, noise: float = 1e-5, shift: float = 0.0) -> tuple[Tensor, Tensor, Mixture | None]:
    """A (rows, P), V (h, P) and what is uncovered of Kᵀ A + Hᵀ V + noise."""
    known, masked = integers(rows, 0) + shift, integers(HIDDEN + 1, 1)
    differences = masked[1:] - masked[0]
    mixing, hidden = drawn(rows, WIDTH, seed=2), drawn(HIDDEN, WIDTH, seed=3)
    mixed = mixing.T @ known + hidden.T @ differences + noise * drawn(WIDTH, PIXELS, seed=4)
    target = torch.full_like(known, 128)
    return known, differences, uncover(mixing, mixed, HIDDEN, PAIRS, target=target, noise=1e-5)


@pytest.mark.parametrize("rows", [50, 58, WIDTH, WIDTH + 2])
def test_hidden_rows_are_found_whether_or_not_they_leave_the_span_of_the_others(rows: int) -> None:
    known, differences, mixture = find(rows)
    assert mixture is not None
    basis = mixture.points[rows:]
    # both span one lattice, and what is public is right up to it
    change = torch.linalg.lstsq(basis.T, differences.T).solution
    assert torch.allclose(change, change.round(), atol=1e-6)
    assert abs(float(torch.linalg.det(change))) == pytest.approx(1, abs=1e-6)
    moved = mixture.points[:rows] - known
    steps = torch.linalg.lstsq(basis.T, moved.T).solution.round()
    assert torch.equal(steps.T @ basis, moved)


@pytest.mark.parametrize("change", [{"noise": 3e-2}, {"shift": 0.4}])
def test_noise_and_numbers_between_integers_give_nothing(change: dict[str, float]) -> None:
    assert find(WIDTH, **change)[2] is None


def test_integer_columns_are_found_in_more_unknowns_than_equations() -> None:
    levels, mixing = integers(70, 5), drawn(70, WIDTH, seed=6)
    mixed = mixing.T @ levels + 1e-5 * drawn(WIDTH, PIXELS, seed=7)
    mixed[:, 0] += drawn(WIDTH, seed=8)  # no integer column
    points, solved = Columns(mixing, 1e-5).solve(mixed, torch.full_like(levels, 128))
    assert torch.equal(solved, torch.arange(PIXELS) > 0)
    assert torch.equal(points[:, 1:], levels[:, 1:])
