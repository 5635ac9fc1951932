"""The prior and the solvers against dense linear algebra, at sizes where a covariance fits into memory."""

from functools import cache

import pytest
import torch
from torch import Tensor

from clients import prior, tiny
from mjp.privacy.info import UpdateInfo
from mjp.privacy.server.linear import (
    PatchModes,
    conjugate_gradients,
    denoised,
    noise_of,
    solve_mixed,
    solve_open,
    solve_spanned,
    solve_until_plausible,
)
from mjp.privacy.server.prior import Prior, fit_prior
from mjp.privacy.server.view import View
from mjp.privacy.update import Update

COLOUR = torch.tensor([[0.05, 0.04, 0.03], [0.04, 0.06, 0.04], [0.03, 0.04, 0.07]], dtype=torch.float64)


def chain(length: int, rho: float) -> Tensor:
    """Correlation ρ^|i−j|."""
    index = torch.arange(length)
    return torch.tensor(rho, dtype=torch.float64) ** (index.unsqueeze(0) - index.unsqueeze(1)).abs()


def covariance(of: Prior, height: int, width: int) -> Tensor:
    """Of a (3, H, W) picture as one vector."""
    return torch.kron(of.colour, torch.kron(chain(height, of.rho), chain(width, of.rho)))


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("height", "width"), [(4, 6), (5, 1), (2, 2)])
def test_precision_is_the_inverse_of_the_covariance(height: int, width: int) -> None:
    some = Prior(torch.zeros(3, height, width, dtype=torch.float64), COLOUR, 0.8, (1.0, 1.0))
    picture = drawn(3, height, width)
    expected = torch.linalg.solve(covariance(some, height, width), picture.flatten())
    torch.testing.assert_close(some.precision(picture).flatten(), expected)


def test_fit_finds_the_law_that_pictures_were_drawn_from() -> None:
    true = Prior(torch.full((3, 16, 16), 0.5, dtype=torch.float64), COLOUR, 0.9, (1.0, 1.0))
    root = torch.linalg.cholesky(covariance(true, 16, 16))
    found = fit_prior(true.mean + (drawn(400, 768) @ root.T).view(400, 3, 16, 16))
    assert found.rho == pytest.approx(0.9, abs=0.02)
    assert found.variance == pytest.approx(0.06, rel=0.1)
    torch.testing.assert_close(found.colour, COLOUR, rtol=0.15, atol=0)
    assert float((found.mean - true.mean).abs().max()) < 0.1
    assert found.limits[1] == pytest.approx(1, abs=0.15)  # a draw is as rough as its law says
    assert found.plausible(true.mean)
    assert not found.plausible(true.mean + 0.3 * drawn(3, 16, 16))


def test_smoothing_takes_noise_away_and_no_more() -> None:
    law = Prior(torch.full((3, 16, 16), 0.5, dtype=torch.float64), COLOUR, 0.9, (1.0, 1.2))
    root = torch.linalg.cholesky(covariance(law, 16, 16))
    clean = law.mean + (root @ drawn(768)).view(3, 16, 16)
    assert torch.equal(law.smoothed(clean), clean)  # as rough as its law says: 1
    noisy = clean + 0.2 * drawn(3, 16, 16)
    smooth = law.smoothed(noisy)
    assert law.oddity(noisy)[1] > 2
    assert law.oddity(smooth)[1] == pytest.approx(1.2)
    assert (smooth - clean).square().mean() < 0.5 * (noisy - clean).square().mean()
    # of all pictures as smooth as that it is the one nearest to what was given: no step along the limit comes nearer
    direction = drawn(3, 16, 16, seed=9)
    steepest = law.precision(smooth - law.mean)
    direction -= (direction * steepest).sum() / steepest.square().sum() * steepest
    toward = ((noisy - smooth) * direction).sum() / (noisy - smooth).norm() / direction.norm()
    assert abs(toward) < 1e-6


@cache
def view() -> View:
    """Four patches of 4×4 pixels: 192 unknowns."""
    small = tiny(img_size=8, patch_size=4)
    tensors = {name: torch.ones_like(p) for name, p in small.named_parameters()}
    known = Prior(prior().mean[:, :8, :8], COLOUR, 0.8, prior().limits)
    return View(Update(tensors, UpdateInfo(size=(8, 8))), small, known)


def dense() -> tuple[Tensor, Tensor]:
    """The prior of normalised patches, as rows one after the other: mean (N·P,) and inverse covariance."""
    some = view()
    # columns of `patches`, which is affine: pixels → patches
    origin = some.patches(torch.zeros(3, 8, 8, dtype=torch.float64)).flatten()
    units = torch.eye(192, dtype=torch.float64).view(-1, 3, 8, 8)
    change = torch.stack([some.patches(unit).flatten() - origin for unit in units], 1)
    spread = change @ covariance(some.prior, 8, 8) @ change.T
    return some.patches(some.prior.mean).flatten(), torch.linalg.inv(spread)


def test_mixed_equations_give_the_most_probable_patches() -> None:
    mean, precision = dense()
    mixing, mixed = drawn(4, 64), drawn(64, 48, seed=1)
    noise = 0.2 + drawn(48, seed=2).abs()
    pixel = PatchModes(view())
    weight = pixel.back(torch.diag(noise**-2)).T @ pixel.back(torch.eye(48, dtype=torch.float64))  # (P, P)
    pull = (mixing @ (mixed - mixing.T @ mean.view(4, 48)) @ weight).flatten()
    expected = mean + torch.linalg.solve(torch.kron(mixing @ mixing.T, weight) + precision, pull)
    torch.testing.assert_close(solve_mixed(view(), mixing, mixed, noise).flatten(), expected, rtol=1e-5, atol=1e-5)


def test_noise_is_measured_by_the_equations_too_many() -> None:
    mixing = drawn(4, 64)
    clean = mixing.T @ drawn(4, 48, seed=2)
    deviations = torch.linspace(0.1, 1, 48, dtype=torch.float64)
    noise = PatchModes(view()).back(deviations * drawn(64, 48, seed=3))
    torch.testing.assert_close(noise_of(view(), mixing, clean + noise), deviations, rtol=0.35, atol=0)


def test_noise_alone_has_no_singular_values_and_a_signal_keeps_its_own() -> None:
    noise = drawn(40, 90)
    assert not denoised(torch.linalg.svdvals(noise), torch.Size((40, 90)), 1.05).any()
    left, right = torch.linalg.qr(drawn(40, 3, seed=1))[0], torch.linalg.qr(drawn(90, 3, seed=2))[0]
    true = torch.tensor([60.0, 40.0, 25.0], dtype=torch.float64)
    found = denoised(torch.linalg.svdvals(left * true @ right.T + noise), torch.Size((40, 90)), 1.0)
    torch.testing.assert_close(found[:3], true, rtol=0.15, atol=0)
    assert int((found > 0).sum()) <= 4
    assert torch.equal(denoised(true, torch.Size((3, 5)), 0.0), true)


def test_spanned_equations_give_the_most_probable_patches() -> None:
    mean, precision = dense()
    basis = torch.linalg.qr(drawn(48, 5))[0].T  # (r, P)
    mixing, target, noise = drawn(3, 5, seed=1), drawn(3, 4, seed=2), 0.1
    lift = torch.kron(torch.eye(4, dtype=torch.float64), basis.T.contiguous())  # z (N·r) → x (N·P)
    equations = torch.kron(torch.eye(4, dtype=torch.float64), mixing)
    left = equations.T @ equations / noise**2 + lift.T @ precision @ lift
    right = equations.T @ target.T.flatten() / noise**2 + lift.T @ precision @ mean
    expected = lift @ torch.linalg.solve(left, right)
    found = solve_spanned(view(), basis, mixing, target, noise)
    torch.testing.assert_close(found.flatten(), expected, rtol=1e-5, atol=1e-5)


def test_open_dimensions_are_filled_by_the_prior_alone() -> None:
    mean, precision = dense()
    basis, known = torch.linalg.qr(drawn(48, 5))[0].T, drawn(4, 48, seed=1)
    lift = torch.kron(torch.eye(4, dtype=torch.float64), basis.T.contiguous())
    right = lift.T @ precision @ (mean - known.flatten())
    expected = known.flatten() + lift @ torch.linalg.solve(lift.T @ precision @ lift, right)
    found = solve_open(view(), known, basis)
    torch.testing.assert_close(found.flatten(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(solve_open(view(), known, basis[:0]), known)


def test_equations_that_hold_are_believed_whatever_the_picture_looks_like() -> None:
    """Also where no label can be told, so that the picture's own gradient cannot speak for it."""
    wild = 50 * drawn(4, 48)
    assert not view().prior.plausible(view().picture(wild))
    assert solve_until_plausible(view(), lambda noise: wild / (1 + noise), 5e-4)[1] == 5e-4
    taken = solve_until_plausible(view(), lambda noise: wild / (1 + noise), 5e-3)[1]
    assert taken > 5e-3  # with less certain equations, as much noise as makes a picture of it


def test_conjugate_gradients_solve() -> None:
    root, target = drawn(20, 20), drawn(20, 3, seed=1)
    matrix = root @ root.T + torch.eye(20, dtype=torch.float64)
    diagonal = matrix.diagonal().unsqueeze(1)
    found = conjugate_gradients(lambda x: matrix @ x, target, lambda x: x / diagonal)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, target), rtol=1e-5, atol=1e-6)
    assert not conjugate_gradients(lambda x: matrix @ x, torch.zeros_like(target), lambda x: x).any()
