"""Integer points of all patches from one update, the most certain first: what is certain is subtracted from the update.

In grey levels, with K (n, D) the gradients of the unmasked patches and, last, ∂L/∂E_unk:

    ∂L/∂W = Kᵀ L + H F,   L (n, P) integer: the unmasked patches and one of the masked;  F (q, P): their differences

So L is known up to span F and noise, and Z^P ∩ span F is a lattice Λ. Noise e in the numbers of ∂L/∂W moves row i of L
by e times the length of row i of (Kᵀ)⁺, and direction j of span F by e / σ_j, σ the singular values of what is off the
rows of K. Both are small for some patches and large for others, whose gradients are short or alike. But any point of
l_i + Λ may be subtracted, Kᵀ and all: what is left has the same span F, fewer unknown rows and hence less noise. Peeled
like this, the last patches and the last vectors of Λ are as certain as if they stood alone.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.privacy.server.cosets import MAX_OPEN, Cosets, kronecker
from mjp.privacy.server.integers import Reduced, choose_pixels, nearest_points, normalisation, reduce_open
from mjp.privacy.server.view import View

MAX_TURNS = 40
STEP = 2.0  # by which the noise rises that is borne, when nothing else is left to solve
WIDTH = 32  # points of the reduced pixels that are tried for every patch
# pixels that enter a reduction beyond twice the open dimensions, and the noise that it assumes over the typical one
ATTEMPTS = ((80, 2.0), (24, 2.0), (80, 0.6), (80, 10.0))
MAX_ERROR = 0.5  # levels in any pixel
MAX_NOISE = 0.09  # levels: with more, one of hundreds of pixels is rounded to a wrong integer
MIN_NOISE = 1e-4  # levels: with less, the metric of a reduction is singular in double precision
SURE = 0.01  # levels: noise with which the first points are taken
EXCESS = 2.0  # of an error over the noise that is expected
NUISANCE = 1.2  # of a singular value of the noise over what it has if it is white
RIVAL = 0.1  # of the noise, squared, by which the best point must fit better than others
SMALL = 0.5  # of the limit: errors that need no explanation
MARGIN = 30.0  # nats by which points that fit by chance are improbable
MAX_SHARE = 0.05  # of the length of a vector of Λ that may be noise
ROUGHNESS = 20.0  # levels that patches may have in any direction: some are far rougher than the prior expects
MIN_WEIGHT = 0.02  # of the gradients of a dimension, relative to the median


def peel_cosets(view: View, answer: Tensor) -> Cosets:
    """The integer points that an update leaves of every patch; `answer` (N, P) levels: of the closed form."""
    mask = view.mask
    if int(mask.sum()) > MAX_OPEN:
        return Cosets(answer.round(), answer[:0], torch.zeros_like(mask), mask)
    mean, std = (255 * numbers for numbers in normalisation(view))  # (P,)
    mixing = torch.cat([view.positions[~mask], view.unknown.unsqueeze(0)])  # K
    mixed = view.projection * std + torch.outer(mixing.sum(0), mean)
    floor = view.resolution / 100 * float(mixed.square().mean().sqrt())
    goal = torch.cat([answer[~mask], answer[mask].mean(0, keepdim=True)])
    covariance = 255**2 * kronecker(view.prior.patch_covariances(view.patch))
    peeling = Peeling(mixing, mixed, int(mask.sum()) - 1, goal=goal, covariance=covariance, floor=floor)
    points, solved, basis = peeling.run()
    rows = torch.full_like(mask, len(goal) - 1, dtype=torch.long)  # masked patches: the last row
    rows[~mask] = torch.arange(len(goal) - 1)
    return Cosets(points[rows], basis, solved[rows], mask)


class Peeled(NamedTuple):
    points: Tensor  # (n, P) levels, where solved: a point of l_i + Λ
    solved: Tensor  # (n,) bool
    basis: Tensor  # (r, P) of Λ, or of a part of it


class Estimate(NamedTuple):
    """What the update says of the rows of L that are not solved."""

    origin: Tensor  # (a, P)
    spread: Tensor  # (a,) noise of the origin, levels
    free: Tensor  # (q', P) orthonormal rows
    directions: Tensor  # (o, P) those of `free` that are measured; the others are exact
    tilts: Tensor  # (o,) their noise for a unit of length
    nuisance: Tensor  # (s, P) directions off `free` with far more noise than others: errors along them say nothing

    def misfit(self, points: Tensor, origin: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
        """(…,) how far (…, P) integer points are from origin + span F (rms), and the noise that is expected of that."""
        rest = points - origin
        along = (rest @ self.directions.T * self.tilts).square().sum(-1)
        ignored = torch.cat([self.free, self.nuisance])
        rest = rest - (rest @ ignored.T) @ ignored
        error = torch.where(rest.abs().amax(-1) < MAX_ERROR, rest.square().mean(-1).sqrt(), torch.inf)
        return error, (spread.square() + along).sqrt()


class Peeling:
    """K = `mixing` (n, D), ∂L/∂W in levels `mixed` (D, P), and q = `count` open dimensions.

    `goal` (n, P) levels: an answer near which points are looked for; `covariance` (P, P) of patches, in levels;
    `floor`: the least noise of the numbers of ∂L/∂W.
    """

    def __init__(
        self, mixing: Tensor, mixed: Tensor, count: int, *, goal: Tensor, covariance: Tensor, floor: float
    ) -> None:
        # rounding errors of a dimension are as large as its numbers
        lengths = mixing.norm(dim=0)
        weights = 1 / (lengths / lengths.median()).clamp(min=MIN_WEIGHT)  # (D,)
        self.mixing = mixing * weights
        self.mixed = mixed * weights.unsqueeze(1)
        self.count = count
        self.goal = goal
        self.covariance = covariance + ROUGHNESS**2 * torch.eye(len(covariance), dtype=covariance.dtype)
        self.floor = floor
        self.peeled = Peeled(torch.zeros_like(goal), torch.zeros(len(goal), dtype=torch.bool), goal[:0])

    def run(self) -> Peeled:
        """Every turn takes what is more certain than a limit, which rises when nothing is."""
        highest = most_noise(self.mixed.shape[1], self.count)
        limit = min(SURE, highest)
        for _ in range(MAX_TURNS):
            before = self._progress()
            if before == len(self.goal) + self.count or limit > highest:
                break
            estimate = self._estimate()
            if estimate is None:
                break
            self._turn(estimate, limit)
            limit = limit if self._progress() > before else STEP * limit
        return self.peeled

    def _progress(self) -> int:
        return int(self.peeled.solved.sum()) + len(self.peeled.basis)

    def _estimate(self) -> Estimate | None:
        """None where no equation is left over to measure the noise with."""
        points, solved, basis = self.peeled
        width, pixels = self.mixed.shape
        left, values, right = torch.linalg.svd(self.mixing[~solved], full_matrices=False)
        mixed = self.mixed - self.mixing[solved].T @ points[solved]
        rest = mixed - right.T @ (right @ mixed)
        exact = torch.linalg.qr(basis.T)[0].T
        rest = rest - (rest @ exact.T) @ exact
        strengths, rows = torch.linalg.svd(rest, full_matrices=False)[1:]
        number = self.count - len(basis)
        spare = (width - 1 - len(left) - number) * (pixels - self.count)  # LayerNorm takes one dimension
        if spare <= 0:
            return None
        noise = max(float(strengths[number:].norm()) / spare**0.5, self.floor)
        edge = NUISANCE * noise * ((width - 1 - len(left)) ** 0.5 + pixels**0.5)  # beyond what white noise reaches
        nuisance = rows[number : number + int((strengths[number:] > edge).sum())]
        inverse = left @ (right / values.unsqueeze(1))  # (a, D)
        spread = noise * inverse.norm(dim=1)
        free = torch.cat([exact, rows[:number]])
        return Estimate(inverse @ mixed, spread, free, rows[:number], noise / strengths[:number], nuisance)

    def _turn(self, estimate: Estimate, limit: float) -> None:
        """Solve more rows, and find more of Λ."""
        waiting = (~self.peeled.solved).nonzero()[:, 0]
        if len(waiting) and not bool((estimate.spread <= limit).any()):
            return
        missing = self.count - len(self.peeled.basis)
        before = int(self.peeled.solved.sum())
        for reduced in self._reductions(estimate, waiting):
            vectors = self._vectors(estimate, reduced, limit)
            if len(vectors) > len(self.peeled.basis):
                self.peeled = self.peeled._replace(basis=vectors)
            self._solve(estimate, reduced, waiting, limit)
            enough = int(self.peeled.solved.sum()) > before or len(waiting) == 0
            if enough and (missing == 0 or len(self.peeled.basis) > self.count - missing):
                break

    def _reductions(self, estimate: Estimate, waiting: Tensor) -> Iterator[Reduced | None]:
        """One after another, as far as they are needed; None if nothing is open."""
        if len(estimate.free) == 0:
            yield None
            return
        pixels = self.mixed.shape[1]
        typical = ROUGHNESS * pixels**0.5 * estimate.tilts
        if len(waiting):
            typical = estimate.misfit(self.goal[waiting], estimate.origin, estimate.spread)[1]
        for more, factor in ATTEMPTS:
            assumed = min(max(factor * float(typical.median()), MIN_NOISE), MAX_NOISE * factor)
            columns = choose_pixels(estimate.free, min(2 * self.count + more, pixels))
            yield reduce_open(estimate.free, self.covariance, assumed, columns)

    def _vectors(self, estimate: Estimate, reduced: Reduced | None, limit: float) -> Tensor:
        """(r, P) vectors of Λ that are as near to the span as its noise lets them be."""
        if reduced is None:
            return self.goal[:0]
        lengths = ((reduced.vectors @ reduced.metric) * reduced.vectors).sum(1)
        shortest = reduced.vectors[lengths.argsort()[: len(estimate.free)]]
        nothing = torch.zeros_like(self.goal[0])
        vectors = _extended(shortest, nothing, estimate.free, reduced.pixels)
        error, noise = estimate.misfit(vectors, nothing, torch.zeros_like(nothing[:1]))
        size = vectors.square().mean(1).sqrt()
        fits = (noise <= limit) & (error < (EXCESS * noise).clamp(min=MIN_NOISE)) & (error < MAX_SHARE * size)
        return vectors[fits]

    def _solve(self, estimate: Estimate, reduced: Reduced | None, waiting: Tensor, limit: float) -> None:
        """Points of the waiting rows (numbers of all rows) whose noise is below the limit."""
        rows = (~self.peeled.solved[waiting]).nonzero()[:, 0]
        if len(rows) == 0:
            return
        origin, spread = estimate.origin[rows], estimate.spread[rows].unsqueeze(1)
        candidates = self._candidates(estimate.free, reduced, origin, self.goal[waiting[rows]])
        candidates = torch.cat([candidates, _around(estimate, candidates, origin.unsqueeze(1), spread)], 1)
        error, noise = estimate.misfit(candidates, origin.unsqueeze(1), spread)
        fits = (noise <= limit) & (error < (EXCESS * noise).clamp(min=SMALL * limit)) & (error < MAX_NOISE)
        noise = noise.clamp(min=MIN_NOISE)
        cost = ((error / noise).square() / 2 + noise.log()).masked_fill(~fits, torch.inf)
        best = cost.argmin(1)
        accepted = fits.any(1) & ~self._has_rival(estimate, candidates, error, noise, best)
        solved_rows = waiting[rows[accepted]]
        self.peeled.points[solved_rows] = candidates[accepted, best[accepted]]
        self.peeled.solved[solved_rows] = True

    def _has_rival(self, estimate: Estimate, candidates: Tensor, error: Tensor, noise: Tensor, best: Tensor) -> Tensor:
        """(a,) whether a point that does not differ by a vector of Λ fits nearly as well as the best."""
        rows = torch.arange(len(best))
        nothing = torch.zeros_like(self.goal[0])
        apart, tilt = estimate.misfit(candidates - candidates[rows, best].unsqueeze(1), nothing, nothing[:1])
        same = apart < (EXCESS * tilt).clamp(min=MIN_NOISE)
        near = error.square() - error[rows, best].square().unsqueeze(1) < RIVAL * noise[rows, best].square().unsqueeze(
            1
        )
        return (near & ~same).any(1)

    def _candidates(self, free: Tensor, reduced: Reduced | None, origin: Tensor, goal: Tensor) -> Tensor:
        """(a, n, P) integer points near origin + span F."""
        if reduced is None:
            return origin.round().unsqueeze(1)
        inside = torch.linalg.qr(free[:, reduced.pixels].T)[0]
        base = origin[:, reduced.pixels]
        start = base + (goal[:, reduced.pixels] - base) @ inside @ inside.T  # satisfies the equations
        near = nearest_points(torch.zeros_like(start), reduced.vectors, reduced.metric, start, WIDTH)  # (a, n, m)
        return _extended(near, origin.unsqueeze(1), free, reduced.pixels)


def _around(estimate: Estimate, candidates: Tensor, origin: Tensor, spread: Tensor) -> Tensor:
    """(a, n, P) what fits best of (a, ·, P) candidates, a little brighter and darker.

    The difference of a dark patch and a bright one is nearly constant, so a constant is nearly in span F.
    """
    error = estimate.misfit(candidates, origin, spread)[0]
    best = candidates[torch.arange(len(candidates)), error.argmin(1)].unsqueeze(1)
    channels = torch.eye(3, dtype=best.dtype).repeat_interleave(best.shape[2] // 3, 1)  # (3, P)
    shifts = torch.cat([channels, channels.sum(0, keepdim=True), 2 * channels.sum(0, keepdim=True)])
    return best + torch.cat([shifts, -shifts])


def most_noise(pixels: int, count: int) -> float:
    """The noise, in levels, with which hardly any integer point fits by chance.

    In every open dimension a patch has some hundred levels to choose from, and in every other a chance fits as often as
    a Gaussian of that noise fills the space between two integers.
    """
    width = math.sqrt(2 * math.pi * math.e)
    surprise = (count * math.log(2 * width * ROUGHNESS) + MARGIN) / (pixels - count) if pixels > count else math.inf
    return min(MAX_NOISE, math.exp(-surprise) / width)


def _extended(points: Tensor, origin: Tensor, free: Tensor, pixels: Tensor) -> Tensor:
    """(…, P) integer points near origin + span F from (…, m) some of their pixels."""
    weights = (points - origin[..., pixels]) @ torch.linalg.pinv(free[:, pixels])  # (…, q)
    whole = (origin + weights @ free).round()
    whole[..., pixels] = points
    return whole
