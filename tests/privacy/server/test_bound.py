"""The bound on every attack: closed forms, and attacks that may approach it but not cross it."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.privacy.server.bound import bound_gain, eigenvalues, least_error, least_share, most_nats, right_choice
from mjp.privacy.server.prior import Prior, fit_prior


def prior(side: int = 6) -> Prior:
    generator = torch.Generator().manual_seed(0)
    pictures = torch.rand(40, 3, side, side, generator=generator).cumsum(-1)
    return fit_prior(pictures / pictures.max())


def test_white_pictures_share_the_nats_equally() -> None:
    assert least_error(torch.full((8,), 2.0), 3.0) == pytest.approx(16 * math.exp(-2 * 3 / 8))


def test_one_direction_gets_all_nats() -> None:
    assert least_error(torch.tensor([5.0, 0.0, 0.0]), 0.7) == pytest.approx(5 * math.exp(-1.4))
    assert least_error(torch.tensor([1e-9, 5.0, 1e-9]), 0.7) == pytest.approx(5 * math.exp(-1.4) + 2e-9)


def test_the_level_that_water_filling_keeps_costs_exactly_the_nats() -> None:
    variances = torch.rand(50, generator=torch.Generator().manual_seed(1), dtype=torch.float64) ** 4
    for level in (0.5, 0.1, 1e-3, 1e-7):
        nats = float((variances / level).clamp(min=1).log().sum()) / 2
        assert least_error(variances, nats) == pytest.approx(float(variances.clamp(max=level).sum()))


def test_extremes() -> None:
    variances = torch.tensor([3.0, 1.0])
    assert least_error(variances, 0.0) == pytest.approx(4.0)
    assert least_error(variances, math.inf) == 0.0
    assert most_nats(0.0) == most_nats(1e-200) == math.inf
    assert bound_gain(prior(), 0.0) == (math.inf, math.inf, math.inf)


def test_more_rounds_say_more_and_more_noise_says_less() -> None:
    rounds = [bound_gain(prior(), 10.0, count) for count in (1, 10, 100, 1000)]
    noise = [bound_gain(prior(), sigma, 100) for sigma in (100.0, 30.0, 10.0, 3.0)]
    for less, more in [*pairwise(rounds), *pairwise(noise)]:
        assert less.nats < more.nats
        assert less.gaussian < more.gaussian
        assert less.any_prior < more.any_prior or less.any_prior == math.inf


def test_eigenvalues_are_those_of_the_covariance() -> None:
    """The oracle: the inverse covariance as the prior applies it, written out as a matrix."""
    small = prior(4)
    size = small.mean.numel()
    columns = [small.precision(unit.view(3, 4, 4)).flatten() for unit in torch.eye(size, dtype=torch.float64)]
    expected = torch.linalg.eigvalsh(torch.linalg.inv(torch.stack(columns)))
    torch.testing.assert_close(eigenvalues(small).sort().values, expected)
    assert float(expected.sum()) == pytest.approx(small.variance * size)


def best_linear_attack(variances: Tensor, powers: Tensor, sigma: float, rounds: int) -> float:
    """Mean squared error of the best attack on a client that sends scaled coordinates: the MMSE of a Gaussian channel.

    Coordinate i has power `powers[i]`, together at most 1 (what clipping allows on average), and noise σ² in a round.
    """
    return float((variances / (1 + rounds * powers / sigma**2)).sum())


@pytest.mark.parametrize("sigma", [0.5, 3.0, 10.0, 40.0])
@pytest.mark.parametrize("rounds", [1, 100])
def test_no_gaussian_channel_is_better_than_the_bound(sigma: float, rounds: int) -> None:
    generator = torch.Generator().manual_seed(2)
    variances = torch.rand(20, generator=generator, dtype=torch.float64) ** 3
    least = least_error(variances, most_nats(sigma, rounds))
    one = torch.zeros(20, dtype=torch.float64)
    one[variances.argmax()] = 1.0
    shares = torch.rand(200, 20, generator=generator, dtype=torch.float64) ** 6
    allocations = [one, *(shares / shares.sum(1, keepdim=True))]
    errors = [best_linear_attack(variances, powers, sigma, rounds) for powers in allocations]
    assert min(errors) >= least
    if rounds < sigma**2 / 10:  # few nats: then the bound is nearly reached
        gain, most = (float(variances.sum()) - error for error in (min(errors), least))
        assert gain > 0.9 * most


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_the_bound_for_any_prior_holds_where_the_gaussian_one_does_not(share: float) -> None:
    """Pictures that are black or white: the client sends the one bit with all its power, and the attack is exact Bayes.

    The server knows the two pictures. What is left of the variance is simulated.
    """
    generator = torch.Generator().manual_seed(3)
    sigma, rounds = 8.0, 16
    white = (torch.rand(200_000, generator=generator) < share).double()
    signal = 2 * white - 1  # of norm 1, as clipped
    seen = rounds * signal + sigma * math.sqrt(rounds) * torch.randn(len(white), generator=generator)  # sum of rounds
    odds = math.log(share / (1 - share)) + 2 * seen / sigma**2
    errors = (torch.sigmoid(odds) - white).square()
    guess = share * (1 - share)
    least = guess * least_share(sigma, rounds)
    assert least < float(errors.mean()) < guess
    if share == 0.5:  # where the bound is nearly reached
        assert guess - float(errors.mean()) > 0.8 * (guess - least)


@pytest.mark.parametrize("seed", range(5))
def test_no_attacker_with_a_list_of_pictures_keeps_less_than_the_bound(seed: int) -> None:
    """Six pictures, their probabilities and their clipped gradients are arbitrary and public; the attack is exact."""
    generator = torch.Generator().manual_seed(seed)
    sigma = 1.5
    pictures = torch.rand(6, 4, generator=generator)
    belief = torch.rand(6, generator=generator).softmax(0)
    gradients = torch.nn.functional.normalize(torch.randn(6, 2, generator=generator), dim=1)
    number = torch.multinomial(belief, 100_000, replacement=True, generator=generator)
    seen = gradients[number] + sigma * torch.randn(len(number), 2, generator=generator)
    likelihood = -torch.cdist(seen, gradients).square() / (2 * sigma**2)
    answers = (likelihood + belief.log()).softmax(1) @ pictures
    errors = (answers - pictures[number]).square().sum(1).mean()
    guess = (belief @ pictures - pictures[number]).square().sum(1).mean()
    assert least_share(sigma) < float(errors / guess) < 1


def test_the_right_one_of_ten_is_picked_no_more_often_than_the_bound_says() -> None:
    """Ten pictures whose gradients are orthogonal; the attack takes the largest correlation, which is the best."""
    generator = torch.Generator().manual_seed(4)
    sigma, rounds = 10.0, 100
    looks = math.sqrt(rounds) / sigma * torch.eye(10)[0] + torch.randn(100_000, 10, generator=generator)
    rate = float((looks.argmax(1) == 0).float().mean())
    assert 0.25 < rate <= right_choice(0.1, sigma, rounds)
    assert right_choice(0.1, 1e9) == pytest.approx(0.1)
    assert right_choice(0.0, 1.0) == 0.0
    assert right_choice(0.1, 0.0) == right_choice(1.0, 5.0) == 1.0


def test_what_is_no_noise_multiplier_is_refused() -> None:
    with pytest.raises(InputError, match="sigma must"):
        most_nats(-1.0)
    with pytest.raises(InputError, match="rounds must"):
        most_nats(1.0, 0)
    with pytest.raises(InputError, match="chance must"):
        right_choice(1.5, 1.0)
