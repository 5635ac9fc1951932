"""How much any attack can gain from updates with Gaussian noise: a bound, where everything else here is an attempt.

A picture x takes part in R rounds. In each the server gets the sum of clipped gradients, that of x of norm at most C,
plus Gaussian noise of deviation σC on every coordinate; it may choose the weights of a round after what it saw before,
and may know every other picture. y are all updates, p(y|x) their density.

Pictures of any kind. Two candidates x, x' move a round's sum apart by at most 2C, so that the overlap of their updates,
∫ √(p(y|x) p(y|x')) dy, is at least exp(−1 / (2σ²)) in a round and exp(−R / (2σ²)) in all. Draw x from any distribution,
and x, x' from what the attacker believes after y. Its mean squared error is at least

    ½ E ‖x − x'‖² = ½ ∬ ‖x − x'‖² ∫ p(y|x) p(y|x') / p(y) dy dP(x) dP(x') ≥ exp(−R / σ²) · ½ ∬ ‖x − x'‖² dP(x) dP(x')

by Cauchy and Schwarz (∫ pp'/p(y) ≥ (∫ √(pp'))²), and the last integral is the error of its best guess without updates.
So R updates gain at most 10 log10(e) · R / σ² dB, whatever the attacker knows beforehand.

Pictures like the prior. Against the same sums without x a round diverges by ‖gradient of x‖² / (2σ²C²) ≤ 1 / (2σ²), and
rounds add up (chain rule): the updates carry at most R / (2σ²) nats about x. If x is drawn from a Gaussian, no attack
has a smaller mean squared error than its rate-distortion function: reverse water-filling over the eigenvalues of the
covariance (Cover and Thomas, 2006, 10.3.3).

Both are about the mean squared error over pictures, not about the luckiest picture, and about exact Gaussian noise.
`right_choice` is about single pictures: how often an attacker with a list of candidates picks the right one.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.common.validate import number, whole
from mjp.privacy.server.prior import Prior


class Bound(NamedTuple):
    """What R updates say about a picture at most, and what an attack gains from it over the guess, in dB."""

    nats: float
    gaussian: float  # if pictures are distributed as the Gaussian prior
    any_prior: float  # whatever pictures are like, over the best guess of an attacker who knows it


def bound_gain(prior: Prior, sigma: float, rounds: int = 1) -> Bound:
    """Gain: ten times the logarithm of the mean squared error of the guess over that of the best attack.

    Args:
        prior: What the attacker knows of pictures; its mean is the guess.
        sigma: The noise multiplier: deviation of the noise on a sum of gradients over the norm they are clipped to.
        rounds: Updates in which a picture takes part.
    """
    nats = most_nats(sigma, rounds)
    spectrum = eigenvalues(prior)
    gaussian = decibels(float(spectrum.sum()), least_error(spectrum, nats))
    return Bound(nats, gaussian, decibels(1.0, least_share(sigma, rounds)))


def most_nats(sigma: float, rounds: int = 1) -> float:
    """The most that `rounds` updates say about one picture."""
    number("sigma", sigma, least=0)
    whole("rounds", rounds, least=1)
    return rounds / 2 / sigma / sigma if sigma > 0 else math.inf


def least_error(variances: Tensor, nats: float) -> float:
    """The smallest mean squared error, summed over coordinates, with which `nats` describe a Gaussian vector.

    Reverse water-filling: a coordinate of variance v above the level t gets ½ log(v / t) nats and keeps the error t;
    the others get nothing and keep v. `variances` (d,) are the eigenvalues of the covariance.
    """
    values = variances.double().sort(descending=True).values
    if nats == math.inf:
        return 0.0
    counts = torch.arange(1, len(values) + 1, dtype=values.dtype)
    levels = ((values.log().cumsum(0) - 2 * nats) / counts).exp()  # if the k largest shared the nats
    # with too few of them the level would be below the next one, so the first that is not is right
    following = torch.cat([values[1:], values.new_zeros(1)])
    level = levels[(levels >= following).nonzero()[0, 0]]
    return float(values.minimum(level).sum())


def least_share(sigma: float, rounds: int = 1) -> float:
    """The share of the guess's mean squared error that every attack keeps, for pictures of any kind."""
    return math.exp(-2 * most_nats(sigma, rounds))


def eigenvalues(prior: Prior) -> Tensor:
    """(3·H·W,) the variances of the uncorrelated directions of a picture."""
    height, width = prior.mean.shape[-2:]
    factors = [torch.linalg.eigvalsh(matrix) for matrix in prior.patch_covariances((height, width))]
    return torch.einsum("a,b,c->abc", *factors).flatten()


def right_choice(chance: float, sigma: float, rounds: int = 1) -> float:
    """How often, at most, an attack picks the right one of some candidates that are right by `chance` without updates.

    For any prior over pictures and any success that can be told from the picture and the answer: the updates are no
    better than one look at a variable of variance 1 that x moves by √R / σ (Neyman and Pearson; Hayes et al., 2023).
    """
    number("chance", chance, least=0, most=1)
    shift = math.sqrt(2 * most_nats(sigma, rounds))
    if chance in (0.0, 1.0) or shift == math.inf:
        return 1.0 if chance else 0.0
    normal = NormalDist()
    return normal.cdf(normal.inv_cdf(chance) + shift)


def decibels(guess: float, attack: float) -> float:
    return 10 * math.log10(guess / attack) if attack > 0 else math.inf
