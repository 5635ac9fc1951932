"""Integer points of affine subspaces, on systems made from known integers."""

import pytest
import torch
from torch import Tensor

from mjp.privacy.server.integers import (
    choose_pixels,
    extend,
    integer_basis,
    integer_points,
    nearest_points,
    reduce_lattice,
    reduce_open,
)

pytest.importorskip("fpylll")
PIXELS, OPEN, PATCHES = 40, 4, 12


def system(noise: float = 1e-4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Known integers l (N, P), differences (q, P), F (q, P), and a (N, P) with l ∈ a + span(F) up to noise."""
    generator = torch.Generator().manual_seed(0)
    masked = torch.randint(0, 256, (OPEN + 1, PIXELS), generator=generator).double()
    levels = torch.randint(0, 256, (PATCHES, PIXELS), generator=generator).double()
    differences = masked[1:] - masked[0]
    free = torch.linalg.qr(differences.T)[0].T
    moved = levels + 300 * torch.randn(PATCHES, OPEN, generator=generator, dtype=torch.float64) @ free
    return levels, differences, free, moved + noise * torch.randn(moved.shape, generator=generator).double()


def near(levels: Tensor, free: Tensor) -> Tensor:
    """A guess that is off by up to 20 levels within the span."""
    generator = torch.Generator().manual_seed(1)
    return levels + 20 * torch.randn(PATCHES, OPEN, generator=generator, dtype=torch.float64) @ free


def test_integers_are_recovered_from_real_equations() -> None:
    levels, differences, free, origin = system()
    covariance = 60.0**2 * torch.eye(PIXELS, dtype=torch.float64)
    reduced = reduce_open(free, covariance, 2e-4, choose_pixels(free, 24))
    basis = integer_basis(reduced, free, 0.03)
    assert len(basis) == OPEN
    # both bases span one lattice: each is an integer combination of the other, with determinant ±1
    change = torch.linalg.lstsq(basis.T, differences.T).solution
    assert torch.allclose(change, change.round(), atol=1e-6)
    assert abs(float(torch.linalg.det(change))) == pytest.approx(1, abs=1e-6)
    points, error = integer_points(reduced, origin, free, near(levels, free), 1)
    assert float(error.max()) < 1e-2
    candidates = nearest_points(points, basis, torch.eye(PIXELS).double(), near(levels, free), 4)
    assert torch.equal(candidates[:, 0], levels)


def test_a_point_that_is_not_integer_everywhere_has_a_large_error() -> None:
    levels, _, free, origin = system()
    pixels = choose_pixels(free, 24)
    right = extend(levels[:, pixels], origin[0], free, pixels)[1]
    assert float(right[0]) < 1e-2
    wrong = levels[:1, pixels].clone()
    wrong[0, 3] += 1
    assert extend(wrong, origin[0], free, pixels)[1][0] == torch.inf


def test_reduction_keeps_the_lattice_and_shortens_it() -> None:
    metric = torch.tensor([[1.0, 99.0], [99.0, 9802.0]], dtype=torch.float64)  # of the basis (1, 0), (99, 1)
    vectors = reduce_lattice(metric)
    assert abs(float(torch.linalg.det(vectors))) == pytest.approx(1)
    assert ((vectors @ metric) * vectors).sum(1).tolist() == pytest.approx([1, 1])


def test_the_beam_finds_the_nearest_of_all_points() -> None:
    generator = torch.Generator().manual_seed(3)
    basis = torch.randint(-9, 10, (3, 6), generator=generator).double()
    points = torch.randint(-9, 10, (5, 6), generator=generator).double()
    metric = torch.eye(6, dtype=torch.float64)
    target = torch.zeros_like(points)
    basis = reduce_lattice(basis @ basis.T) @ basis
    grid = torch.cartesian_prod(*(torch.arange(-6.0, 7.0, dtype=torch.float64) for _ in range(3)))
    best = (points.unsqueeze(1) + grid @ basis).square().sum(2).min(1).values
    nearest = nearest_points(points, basis, metric, target, 16)[:, 0]
    assert torch.equal(nearest.square().sum(1), best)
