"""Lattice attack: pixels are whole numbers. One picture of 8 bits.

Where the activations of the first MLP solve what the closed forms leave open, the integer points nearest to that answer
are taken. Otherwise:

The closed forms leave every patch open in q real dimensions, x = a + z F (subspace: q = k − 1 for k masked patches;
direct and span: rounding errors). In grey levels l = 255 (x·std + mean) is an integer vector, and

    Z^P ∩ (a + span F) = p + Λ,   Λ = Z^P ∩ span F, a lattice of rank q: integer combinations of masked differences

so a handful of candidates is left where there was a continuum. Λ and a point p of every patch come from lattice
reduction (server/integers.py); which point of p + Λ it is, the prior decides, given the neighbouring patches: the
nearest points by the Gaussian prior, and of these the one with the smallest differences between neighbouring pixels,
which in pictures are sparse. A patch counts as recovered only if all its pixels come out integer, within 0 … 255, and
the prior does not expect a smaller error from the answer of the closed form, which the other patches keep.
"""

from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mjp.pictures.patches import patchify, unpatchify
from mjp.privacy.attacks import activations, direct, span, subspace
from mjp.privacy.server.integers import (
    MAX_TOLERANCE,
    choose_pixels,
    integer_basis,
    integer_points,
    nearest_points,
    reduce_lattice,
    reduce_open,
    snap,
)
from mjp.privacy.server.linear import OpenSystem, PatchModes, precision, solve_open
from mjp.privacy.server.needs import NEEDS as ALL_NEEDS
from mjp.privacy.server.needs import require
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME = "lattice"
TITLE = "integer pixels (lattice reduction)"
HELP = "subspace, direct or span, then uses that 8-bit pixels are whole numbers; needs mjp[lattice]"
NEEDS = ("one", "projection")
MIN_TOLERANCE = 0.03
MIN_NOISE = 1e-4  # levels: with less, the metric of the reduction is singular in double precision
DEVIATIONS = 10  # of the estimated noise, within which an integer point satisfies the equations
BEAM = 32  # candidates for each patch
SHARPNESS = 0.25  # the share of each of three views of the pixels in their log-likelihood
MIN_PROBABILITY = 0.9  # of a candidate among the candidates
PASSES = 6  # over all patches, each given the neighbours that the last one recovered
EQUATIONS = (24, 80)  # pixels that enter the reduction beyond twice the open dimensions: first try, second try
MAX_DISTANCE = 3.0  # levels (rms) between the answer of the activations and an integer point that it stands for
MAX_OPEN = 40  # dimensions: beyond, the reduction takes minutes


class Cosets(NamedTuple):
    """Integer points of every patch: points + Z·basis, where `solved`."""

    points: Tensor  # (N, P) levels
    basis: Tensor  # (q, P)
    solved: Tensor  # (N,) bool
    decoys: Tensor  # (N,) bool: masked patches are in the cosets of each other, so only their borders tell them apart


def run(view: View) -> Reconstruction:
    require(view, *NEEDS)
    check_installed()
    if view.model.unknown is not None and "pos_embed" in view.gradients and bool(view.mask.any()):
        system = subspace.open_system(view)
        start = solve_open(view, system.origin, system.free)
        details = {"condition": system.condition, "open_dimensions": len(system.free), "masked": int(view.mask.sum())}
        if solved := _behind_activations(view, system, start):
            return view.reconstruction(solved[0], **{**details, "open_dimensions": 0}, integer_patches=solved[1])
        answer = to_levels(view, start)
        cosets = find_cosets(view, system, answer)
    else:
        base = (direct if "pos_embed" in view.gradients else span).run(view)
        answer = patchify(base.pictures[0], view.patch) * 255
        cosets = _rounded(answer)
        details = base.details
    levels, exact = choose_points(view, cosets, answer)
    return view.reconstruction(to_patches(view, levels), **details, integer_patches=int(exact.sum()))


def _behind_activations(view: View, system: OpenSystem, start: Tensor) -> tuple[Tensor, int] | None:
    """(N, P) patches and how many are integer, if the activations of the first MLP solve the open dimensions.

    Their answer is off by a few levels at most, so the nearest integer point of a coset is the right one.
    """
    if not all(need.present(view) for need in (ALL_NEEDS[name] for name in activations.NEEDS)):
        return None
    patches, gain = activations.solve_system(view, system, view.mask, start)
    if gain < activations.MIN_GAIN:
        return None
    answer = to_levels(view, patches)
    cosets = find_cosets(view, system, answer)
    points = _near(cosets, torch.eye(answer.shape[1], dtype=answer.dtype), answer)[:, 0]
    possible = ((points >= 0) & (points <= 255)).all(1)
    exact = cosets.solved & possible & ((points - answer).square().mean(1).sqrt() < MAX_DISTANCE)
    patches = to_patches(view, torch.where(exact.unsqueeze(1), points, answer))
    patches, whole = snap(view, patches)
    return activations.put_back(view, patches, view.mask), int(whole.sum())


def check_installed() -> None:
    if find_spec("fpylll") is None:
        raise Refused("the package fpylll is missing: pip install 'mjp[lattice]'")


def to_levels(view: View, patches: Tensor) -> Tensor:
    """(N, P) normalised → grey levels, 0 … 255 for pictures."""
    return patchify(view.picture(patches), view.patch) * 255


def to_patches(view: View, levels: Tensor) -> Tensor:
    return view.patches(unpatchify(levels / 255, view.grid, view.patch))


def _rounded(answer: Tensor) -> Cosets:
    """No dimension is open: the nearest integers, if the answer is so near to integers that it is not by chance."""
    points = answer.round()
    solved = (answer - points).square().mean(1).sqrt() < MAX_TOLERANCE
    return Cosets(points, answer.new_zeros(0, answer.shape[1]), solved, torch.zeros_like(solved))


def find_cosets(view: View, system: OpenSystem, answer: Tensor) -> Cosets:
    """The integer points that satisfy the equations; nothing is solved where the reduction does not find Λ."""
    scale = 255 * view.weight.new_tensor(view.info.std).repeat_interleave(view.patch[0] * view.patch[1])  # (P,)
    count = len(system.free)
    nothing = Cosets(answer.round(), answer.new_zeros(0, len(scale)), torch.zeros_like(view.mask), view.mask)
    if count == 0:
        return _rounded(to_levels(view, system.origin))
    if count > MAX_OPEN:
        return nothing
    free = torch.linalg.qr((system.free * scale).T)[0].T  # (q, P) in levels
    origin = to_levels(view, system.origin)
    noise = (system.noise * scale.mean()).clamp(min=MIN_NOISE)  # (N,) levels
    tolerance = (DEVIATIONS * noise).clamp(MIN_TOLERANCE, MAX_TOLERANCE)
    covariance = 255**2 * _kron(view.prior.patch_covariances(view.patch))
    typical = float(noise.median())
    best = nothing
    for more in EQUATIONS:
        pixels = choose_pixels(free, min(2 * count + more, len(scale)))
        reduced = reduce_open(free, covariance, 2 * typical, pixels)
        basis = integer_basis(reduced, free, float(tolerance.max()))
        # span F without its noise, if Λ is right: with a wrong one hardly a patch comes out integer
        spans = [free, torch.linalg.qr(basis.T)[0].T] if len(basis) == count else [free]
        for rows in spans:
            points, error = integer_points(reduced, origin, rows, answer, 1)
            # part of Λ is no help: steps along it leave out those that belong to the truth
            cosets = Cosets(points, basis[:0] if rows is free else basis, error < tolerance, view.mask)
            if _worth(cosets) >= _worth(best):
                best = cosets
        if len(best.basis) and bool(best.solved.all()):
            break
    return best


def _worth(cosets: Cosets) -> float:
    """Patches that came out integer; a tenth more with Λ, which lets the prior choose among the integer points."""
    return float(cosets.solved.sum()) * (1.1 if len(cosets.basis) else 1.0)


def _kron(factors: tuple[Tensor, ...]) -> Tensor:
    product = torch.ones(1, 1, dtype=torch.float64)
    for factor in factors:
        product = torch.kron(product, factor.contiguous())
    return product


def choose_points(view: View, cosets: Cosets, answer: Tensor) -> tuple[Tensor, Tensor]:
    """(N, P) levels, and (N,) which patches are integer points; the others keep the answer of the closed form."""
    alone = torch.linalg.inv(_kron(view.prior.patch_covariances(view.patch))) / 255**2  # metrics: of a patch by itself
    given = _kron(view.prior.patch_factors(view.patch)) / 255**2  # and given its neighbours
    modes = PatchModes(view)
    levels = answer
    exact = torch.zeros_like(cosets.solved)
    first = torch.cat([cosets.points.unsqueeze(1), _near(cosets, alone, answer)], 1)
    for _ in range(PASSES):
        target = _expected(view, levels, modes)
        candidates = torch.cat([first, _near(cosets, given, target)], 1)
        energies = (_energy(candidates, answer, alone), _energy(candidates, target, given))
        probability = _probability(candidates, (*energies, _roughness(view, candidates, levels, exact)))
        best = probability.argmax(1)
        point = candidates[torch.arange(len(best)), best]
        certain = (probability.amax(1) > MIN_PROBABILITY) & (~cosets.decoys | _surrounded(exact, view.grid))
        last, exact = levels, cosets.solved & certain & _better(candidates, probability, point, answer)
        levels = torch.where(exact.unsqueeze(1), point, answer)
        if torch.equal(levels, last):
            break
    return levels, exact


def _surrounded(exact: Tensor, grid: tuple[int, int]) -> Tensor:
    """(N,) whether all neighbours of a patch are exact."""
    around = pad(exact.double().view(1, *grid), (1, 1, 1, 1), value=1.0)[0]
    return ((around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:]) == 4).flatten()


def _near(cosets: Cosets, metric: Tensor, target: Tensor) -> Tensor:
    """(N, n, P) points of the cosets near the targets."""
    if len(cosets.basis) == 0:
        return cosets.points.unsqueeze(1)
    basis = reduce_lattice(cosets.basis @ metric @ cosets.basis.T) @ cosets.basis
    return nearest_points(cosets.points, basis, metric, target, BEAM)


def _expected(view: View, levels: Tensor, modes: PatchModes) -> Tensor:
    """(N, P) what the Gaussian prior expects of every patch, given the others."""
    patches = to_patches(view, levels)
    pull = modes.to(precision(view, patches - view.patches(view.prior.mean)))
    return to_levels(view, patches - modes.back(pull / modes.values))


def _probability(candidates: Tensor, sizes: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """(N, n) probabilities of (N, n, P) candidates; `sizes` are squared, squared and absolute deviations (N, n).

    Each is of a scale that differs from patch to patch. With the scale integrated out, m numbers of a Gaussian have a
    density of (Σd²)^(−m/2) and of a Laplacian (Σ|d|)^−m; the three describe the same pixels, so each gets a share.
    """
    impossible = ((candidates < 0) | (candidates > 255)).any(2) | _repeated(candidates)
    logarithms = torch.stack([(size + 1e-9).log() for size in sizes]).sum(0)
    likelihood = (-SHARPNESS * candidates.shape[2] * logarithms).masked_fill(impossible, -torch.inf)
    return torch.where(impossible.all(1, keepdim=True), 0.0, likelihood.softmax(1))


def _repeated(candidates: Tensor) -> Tensor:
    """(N, n) which candidates are in the list before."""
    weights = torch.linspace(1, 2, candidates.shape[2], dtype=candidates.dtype).sqrt()
    keys = candidates @ weights  # equal for equal candidates, and for others by a rare accident
    same = (keys.unsqueeze(2) - keys.unsqueeze(1)).abs() < 1e-6
    return same.tril(-1).any(2)


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
