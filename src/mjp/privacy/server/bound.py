"""How much any attack can gain from updates with Gaussian noise: a bound, where everything else here is an attempt.

A picture x takes part in R rounds. In each the server gets the sum of clipped gradients, that of x of norm at most C,
plus Gaussian noise of deviation σC on every coordinate; it may choose the weights of a round after what it saw before,
and may know every other picture. Against the same sums without x, every round has

    KL(with x ‖ without x) = ‖gradient of x‖² / (2 σ² C²) ≤ 1 / (2 σ²)

and rounds add up (chain rule), so all updates together carry at most R / (2 σ²) nats about x: the mutual information is
the smallest mean divergence from any one distribution. Two theorems turn nats into squared error:

- If x is drawn from a Gaussian, no attack has a smaller mean squared error than its rate-distortion function: reverse
  water-filling over the eigenvalues of the covariance (Cover and Thomas, 2006, 10.3.3).
- If x is drawn from any distribution on [0, 1]^d, whatever the attacker knows of it beforehand, I nats lower its mean
  squared error per pixel by at most I / 2: the mean of a variable with values in an interval of length l moves by at
  most l √(KL / 2) (Donsker and Varadhan, Hoeffding), and a direction of norm 1 has l ≤ √d.

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
    any_prior: float  # whatever pictures are like, over a guess as good as the prior's; infinite: no bound


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
    return Bound(nats, gaussian, decibels(prior.variance, least_error_of_any(prior.variance, nats)))


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


def least_error_of_any(guess: float, nats: float) -> float:
    """The smallest mean squared error per pixel, for pictures of any kind of which an attacker's guess has `guess`."""
    return max(0.0, guess - nats / 2)


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
