"""Which of its integer points a patch is: what the prior, its neighbours and the first LayerNorm say together."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mjp.pictures.patches import unpatchify
from mjp.privacy.server.cosets import Cosets, kronecker
from mjp.privacy.server.integers import nearest_points, reduce_lattice, to_levels, to_patches
from mjp.privacy.server.linear import PatchModes, precision
from mjp.privacy.server.norm_check import NormCheck
from mjp.privacy.server.view import View

BEAM = 32  # candidates for each patch, where only the prior chooses among them
MAX_BEAM = 1024  # where the first LayerNorm does
MAX_NUMBERS = 4_000_000  # pixels of all candidates
SHARPNESS = 0.25  # the share of each of three views of the pixels in their log-likelihood
MIN_PROBABILITY = 0.9  # of a candidate among the candidates
MAX_MOVE = 10.0  # over the median, of the squared distance of a point from the answer of the closed form
# sizes of a point over those of the answer of the closed form
MAX_SURPRISE = (3.0, 1.2)  # unmasked, masked patches
MAX_ROUGHNESS = 1.5
PASSES = 6  # over all patches, each given the neighbours that the last one recovered


class Choice(NamedTuple):
    levels: Tensor  # (N, P)
    exact: Tensor  # (N,) which patches are integer points; the others keep the answer of the closed form


def choose_points(
    view: View, cosets: Cosets, answer: Tensor, *, check: NormCheck | None = None, hint: Tensor | None = None
) -> Choice:
    """The most probable integer points, where they are certain.

    `answer` (N, P) levels: of the closed form. `check`: what the first LayerNorm says of this update, if anything.
    `hint` (N, P): another answer, near which points are looked for too.
    """
    prior = _PatchPrior(view)
    width = min(MAX_BEAM, max(BEAM, MAX_NUMBERS // answer.numel())) if check else BEAM
    levels = answer
    exact = torch.zeros_like(cosets.solved)
    first = [cosets.points.unsqueeze(1), near(cosets, prior.alone, answer, width)]
    if hint is not None:
        first.append(near(cosets, torch.eye(answer.shape[1], dtype=answer.dtype), hint, BEAM))
    for _ in range(PASSES):
        target = prior.expected(levels)
        candidates = torch.cat([*first, near(cosets, prior.given, target, width)], 1)
        sizes = prior.sizes(candidates, Around(answer, target, levels, exact))
        likelihood = _likelihood(candidates, sizes)
        if check:
            likelihood = likelihood + check.log_likelihood(to_patches(view, candidates))
        probability = _normalised(likelihood)
        best = probability.argmax(1)
        point = candidates[torch.arange(len(best)), best]
        certain = (probability.amax(1) > MIN_PROBABILITY) & (~cosets.decoys | _surrounded(exact, view.grid))
        if len(cosets.basis) == 0:  # one point alone has nothing to be compared with
            move = sizes.move[:, 0]
            rounded = (point - answer).abs().amax(1) < 1
            certain &= rounded | (move <= MAX_MOVE * move[cosets.solved].median())
        last, exact = levels, cosets.solved & certain & _better(candidates, probability, point, answer)
        levels = torch.where(exact.unsqueeze(1), point, answer)
        if torch.equal(levels, last):
            break
    exact = exact & prior.plausible(Around(answer, prior.expected(levels), levels, exact), cosets.decoys)
    return Choice(torch.where(exact.unsqueeze(1), levels, answer), exact)


class Around(NamedTuple):
    """What is at hand about every patch."""

    answer: Tensor  # (N, P) levels, of the closed form
    target: Tensor  # (N, P) levels that the prior expects, given the other patches
    levels: Tensor  # (N, P) of the last pass
    exact: Tensor  # (N,) bool


class Sizes(NamedTuple):
    """How large candidates deviate in three views of their pixels, (N, n) each."""

    move: Tensor  # squared, from the answer of the closed form, by the prior of a patch alone
    surprise: Tensor  # squared, from what the prior expects, given the neighbours
    roughness: Tensor  # absolute, between neighbouring pixels


class _PatchPrior:
    """The Gaussian prior of pictures, seen from its patches."""

    def __init__(self, view: View) -> None:
        self.view = view
        # metrics (P, P) of a patch by itself and given its neighbours
        self.alone = torch.linalg.inv(kronecker(view.prior.patch_covariances(view.patch))) / 255**2
        self.given = kronecker(view.prior.patch_factors(view.patch)) / 255**2
        self.modes = PatchModes(view)

    def expected(self, levels: Tensor) -> Tensor:
        """(N, P) of every patch, given the others."""
        patches = to_patches(self.view, levels)
        pull = self.modes.to(precision(self.view, patches - self.view.patches(self.view.prior.mean)))
        return to_levels(self.view, patches - self.modes.back(pull / self.modes.values))

    def sizes(self, candidates: Tensor, around: Around) -> Sizes:
        return Sizes(
            _energy(candidates, around.answer, self.alone),
            _energy(candidates, around.target, self.given),
            _roughness(self.view, candidates, around.levels, around.exact),
        )

    def plausible(self, around: Around, masked: Tensor) -> Tensor:
        """(N,) whether the levels of a patch are about as likely as its answer.

        Points are compared with each other, and all may be wrong. The errors of an answer make it rougher and less like
        its neighbours than the truth is; that of a masked patch is little but the prior, so there the limit is strict.
        """
        sizes = self.sizes(torch.stack([around.levels, around.answer], 1), around)
        limit = torch.where(masked, MAX_SURPRISE[1], MAX_SURPRISE[0])
        rounded = (around.levels - around.answer).abs().amax(1) < 1
        likely = sizes.surprise[:, 0] <= limit * sizes.surprise[:, 1]
        return rounded | (likely & (sizes.roughness[:, 0] <= MAX_ROUGHNESS * sizes.roughness[:, 1]))


def _surrounded(exact: Tensor, grid: tuple[int, int]) -> Tensor:
    """(N,) whether all neighbours of a patch are exact."""
    around = pad(exact.double().view(1, *grid), (1, 1, 1, 1), value=1.0)[0]
    return ((around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:]) == 4).flatten()


def near(cosets: Cosets, metric: Tensor, target: Tensor, width: int) -> Tensor:
    """(N, n, P) points of the cosets near the targets."""
    if len(cosets.basis) == 0:
        return cosets.points.unsqueeze(1)
    basis = reduce_lattice(cosets.basis @ metric @ cosets.basis.T) @ cosets.basis
    return nearest_points(cosets.points, basis, metric, target, width)


def _likelihood(candidates: Tensor, sizes: Sizes) -> Tensor:
    """(N, n) logarithms for (N, n, P) candidates.

    Each is of a scale that differs from patch to patch. With the scale integrated out, m numbers of a Gaussian have a
    density of (Σd²)^(−m/2) and of a Laplacian (Σ|d|)^−m; the three describe the same pixels, so each gets a share.
    """
    impossible = ((candidates < 0) | (candidates > 255)).any(2) | _repeated(candidates)
    logarithms = torch.stack([(size + 1e-9).log() for size in sizes]).sum(0)
    return (-SHARPNESS * candidates.shape[2] * logarithms).masked_fill(impossible, -torch.inf)


def _normalised(likelihood: Tensor) -> Tensor:
    """(N, n) probabilities; zeros where no candidate is possible."""
    impossible = likelihood.isneginf().all(1, keepdim=True)
    return torch.where(impossible, 0.0, likelihood.masked_fill(impossible, 0.0).softmax(1))


def _repeated(candidates: Tensor) -> Tensor:
    """(N, n) which candidates occur before in the list."""
    weights = torch.linspace(1, 2, candidates.shape[2], dtype=candidates.dtype).sqrt()
    keys, order = (candidates @ weights).sort(dim=1, stable=True)  # equal for equal candidates, else by rare accident
    same = torch.zeros_like(keys, dtype=torch.bool)
    same[:, 1:] = keys.diff(dim=1) < 1e-6
    return same.scatter(1, order, same)


def _energy(candidates: Tensor, target: Tensor, metric: Tensor) -> Tensor:
    """(N, n) squared distances from the targets."""
    rest = candidates - target.unsqueeze(1)
    return ((rest @ metric) * rest).sum(2)


def _roughness(view: View, candidates: Tensor, levels: Tensor, exact: Tensor) -> Tensor:
    """(N, n) sums of the absolute differences of neighbouring pixels, which are sparse in pictures.

    Colours are uncorrelated first. Of the borders only those with exact neighbours count.
    """
    height, width = view.patch
    cells, count, _ = candidates.shape
    frame = _frames(unpatchify(levels, view.grid, view.patch), view.patch).unsqueeze(1).repeat(1, count, 1, 1, 1)
    frame[..., 1:-1, 1:-1] = candidates.view(cells, count, 3, height, width)
    certain = exact.double().view(1, *view.grid).repeat_interleave(height, 1).repeat_interleave(width, 2)
    certain = _frames(certain, view.patch)  # (N, 1, h + 2, w + 2)
    certain[..., 1:-1, 1:-1] = 1
    values, vectors = torch.linalg.eigh(view.prior.colour)
    frame = torch.einsum("ncdhw,de->ncehw", frame, vectors / values.sqrt())
    total = candidates.new_zeros(cells, count)
    for cut, axis in (((..., slice(1, -1), slice(None)), -1), ((..., slice(None), slice(1, -1)), -2)):
        both = certain[cut].unfold(axis, 2, 1).prod(-1).unsqueeze(1)
        total += (frame[cut].diff(dim=axis).abs() * both).sum((2, 3, 4))
    return total


def _frames(picture: Tensor, patch: tuple[int, int]) -> Tensor:
    """(C, H, W) → (N, C, h + 2, w + 2): every patch with the pixels around it; zeros beyond the picture."""
    around = pad(picture, (1, 1, 1, 1))
    frames = around.unfold(1, patch[0] + 2, patch[0]).unfold(2, patch[1] + 2, patch[1])
    return frames.permute(1, 2, 0, 3, 4).flatten(0, 1).clone()


def _better(candidates: Tensor, probability: Tensor, point: Tensor, answer: Tensor) -> Tensor:
    """(N,) whether the point is expected to be nearer to the truth, one of the candidates, than the answer is."""

    def expected_error(guess: Tensor) -> Tensor:
        return ((candidates - guess.unsqueeze(1)).square().sum(2) * probability).sum(1)

    return (probability.sum(1) > 0) & (expected_error(point) < expected_error(answer))
