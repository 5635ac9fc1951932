"""Peeling on systems made from known integers: patches that noise hides at first are solved once others are gone."""

import pytest
import torch
from torch import Tensor

from mjp.privacy.server.peeling import MAX_NOISE, Peeled, Peeling, most_noise

pytest.importorskip("fpylll")
PIXELS, OPEN, ROWS, WIDTH = 96, 3, 12, 40


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def levels(count: int, seed: int) -> Tensor:
    return (128 + 40 * numbers(count, PIXELS, seed=seed)).round()


class Case:
    """Rows of K, half of which are so alike that noise hides the patches behind them; ∂L/∂W; the truth."""

    def __init__(self, *, noise: float = 1e-3, between: float = 0.0) -> None:
        self.truth = levels(ROWS, 0)
        masked = levels(OPEN + 1, 1)
        self.differences = masked[1:] - masked[0]
        self.mixing = numbers(ROWS, WIDTH, seed=2)
        self.mixing[6:] = self.mixing[6] + 0.01 * self.mixing[6:]
        mixed = self.mixing.T @ (self.truth + between) + numbers(WIDTH, OPEN, seed=3) @ self.differences
        lengths = self.mixing.norm(dim=0).unsqueeze(1)  # rounding errors are as large as the numbers
        self.mixed = mixed + noise * lengths / lengths.mean() * numbers(WIDTH, PIXELS, seed=4)
        self.goal = self.truth + 0.1 * numbers(ROWS, OPEN, seed=5) @ self.differences

    def peeling(self) -> Peeling:
        covariance = 40.0**2 * torch.eye(PIXELS, dtype=torch.float64)
        return Peeling(self.mixing, self.mixed, OPEN, goal=self.goal, covariance=covariance, floor=1e-9)

    def in_coset(self, peeled: Peeled) -> Tensor:
        """(n,) which points differ from the truth by a whole combination of the differences."""
        rest = peeled.points - self.truth
        weights = torch.linalg.lstsq(self.differences.T, rest.T).solution.T
        return (weights.round() @ self.differences - rest).abs().amax(1) < 1e-6


def test_patches_that_noise_hides_at_first_are_solved_at_last() -> None:
    case = Case(noise=3e-3)
    peeling = case.peeling()
    first = peeling._estimate()
    assert first is not None
    assert float(first.spread.max()) > MAX_NOISE  # not to be rounded as they are
    peeled = peeling.run()
    assert bool(peeled.solved.all())
    assert bool(case.in_coset(peeled).all())
    change = torch.linalg.lstsq(case.differences.T, peeled.basis.T).solution
    assert abs(float(torch.linalg.det(change))) == pytest.approx(1, abs=1e-6)


def test_the_noise_of_the_first_estimate_is_what_it_says() -> None:
    case = Case()
    estimate = case.peeling()._estimate()
    assert estimate is not None
    error, noise = estimate.misfit(case.truth, estimate.origin, estimate.spread)
    assert 0.7 < float((error / noise).median()) < 1.4


def test_patches_between_grey_levels_are_not_solved() -> None:
    assert not bool(Case(between=0.37).peeling().run().solved.any())


def test_more_noise_than_integers_can_bear_solves_nothing_wrong() -> None:
    case = Case(noise=0.3)
    peeled = case.peeling().run()
    assert not bool((peeled.solved & ~case.in_coset(peeled)).any())


def test_few_pixels_bear_less_noise() -> None:
    limits = [most_noise(pixels, 16) for pixels in (17, 48, 192, 768)]
    assert limits == sorted(limits)
    assert limits[0] < 1e-12
    assert limits[-1] == MAX_NOISE
    assert most_noise(16, 16) == 0
