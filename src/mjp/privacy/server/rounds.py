"""Several updates of one picture: what each round leaves open, and what is left open by all of them.

Round r determines every patch, in its own place, up to the differences of the patches that were masked in that round:
x_i ∈ a_i^r + span(F_r), masked patches included, since they are masked ones in another place. With K = (G_u, ∂L/∂E_unk)

    ∂L/∂W = Kᵀ A + H·F_r        so a^r = (Kᵀ)⁺ ∂L/∂W, and what ∂L/∂W has off the rows of K is in span(F_r)

In a narrow network (N near D or above) that is only a part of span(F_r). The rest follows from a second round: for
patches that are unmasked in both, a_i^r − a_i^s is in span(F_r) + span(F_s), and so x_i ∈ a_i^r + span(F_r) + span(F_s)
for all s.

Where some patches are certain (server/certain.py), they are subtracted from all updates. With fewer unknown patches
every round knows its span, exactly where masked patches are certain.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.privacy.server.choice import choose_points
from mjp.privacy.server.cosets import Cosets, find_cosets
from mjp.privacy.server.integers import can_reduce, snap, to_levels, to_patches
from mjp.privacy.server.linear import OpenSystem, PatchModes, solve_open
from mjp.privacy.server.self_check import explains
from mjp.privacy.server.view import View

LINKED = 0.7  # overlap of row spaces: 1 for one picture; photographs of other things share their smooth part
MIN_CERTAINTY = 300.0  # over the prior's, of a direction that the equations decide
MAX_CONTRADICTION = 3.0  # deviations of the noise: rounds that agree are believed, however rough the picture is
MAX_LOOSER = 5  # attempts to leave more open, each with four times the noise of the last
MAX_WHOLE = 20  # open dimensions that are left to integer points: beyond, the reduction takes minutes
MAX_ATTEMPTS = 8  # each with four times the noise of the last
MIN_VALUE = 1e-7  # of singular values, relative: LayerNorm makes all gradients of tokens sum to zero over the width


class Round(NamedTuple):
    """One update: x_i ∈ origin_i + span(rows) + `missing` further dimensions."""

    origin: Tensor  # (N, P)
    rows: Tensor  # (s, P) orthonormal
    missing: int
    mask: Tensor  # (N,)
    noise: float  # deviation of origin, in normalised pixels


def overlap(first: View, second: View) -> float:
    """Share of the row space of ∂L/∂W that two updates have in common; 1 for any two if N ≥ P."""
    bases = [torch.linalg.svd(view.projection, full_matrices=False)[2][: len(view.table)] for view in (first, second)]
    return float((bases[0] @ bases[1].T).square().sum() / min(map(len, bases)))


class Certain(NamedTuple):
    """Patches that are exact."""

    patches: Tensor  # (N, P) normalised
    rows: Tensor  # (N,) bool: which of them


class Remainder(NamedTuple):
    """What certain patches leave of an update: mixed = Kᵀ A + H·F_r, off the differences of certain masked patches."""

    unknown: Tensor  # K (n, D): gradients of unmasked patches that are not certain, then ∂L/∂E_unk if none is masked
    mixed: Tensor  # (D, P)
    differences: Tensor  # (d, P) orthonormal: a part of span(F_r)


def subtract(view: View, certain: Certain) -> Remainder:
    patches, exact = certain
    mask = view.mask
    masked = patches[exact & mask]
    unknown = view.positions[~mask & ~exact]
    mixed = view.projection - view.positions[~mask & exact].T @ patches[~mask & exact]
    if len(masked):
        mixed = mixed - torch.outer(view.unknown, masked[0])
    elif bool(mask.any()):
        unknown = torch.cat([unknown, view.unknown.unsqueeze(0)])
    values, rows = torch.linalg.svd(masked[1:] - masked[:1], full_matrices=False)[1:]
    differences = rows[: int((values > MIN_VALUE * values[:1]).sum())]
    return Remainder(unknown, mixed - (mixed @ differences.T) @ differences, differences)


def open_round(view: View, certain: Certain | None = None) -> Round:
    """What the position gradients of one update leave open, where some patches are certain."""
    mask = view.mask
    patches, exact = certain or Certain(torch.zeros_like(view.patches(view.prior.mean)), torch.zeros_like(mask))
    unknown, mixed, differences = subtract(view, Certain(patches, exact))
    left, values, right = torch.linalg.svd(unknown, full_matrices=False)
    rank = int((values > MIN_VALUE * values[:1]).sum())
    right = right[:rank]
    answers = left[:, :rank] @ ((right @ mixed) / values[:rank].unsqueeze(1))  # A (n, P)
    origin = patches.clone()
    origin[~mask & ~exact] = answers[: int((~mask & ~exact).sum())]
    if bool(mask.any()):
        origin[mask & ~exact] = patches[exact & mask][0] if bool((exact & mask).any()) else answers[-1]
    rest = mixed - right.T @ (right @ mixed)
    excess, rows = torch.linalg.svd(rest, full_matrices=False)[1:]
    width = len(view.weight) - 1  # LayerNorm
    wanted = max(int(mask.sum()) - 1, 0) - len(differences)
    measured = max(min(width - rank, wanted), 0)
    missing = wanted - measured + len(unknown) - rank
    floor = view.resolution / 100 * float(view.projection.square().mean().sqrt())
    spare = (width - rank - measured) * (mixed.shape[1] - measured)
    error = max(float(excess[measured:].norm()) / spare**0.5 if spare > 0 else 0.0, floor)
    lengths = (left[:, :rank] / values[:rank]).norm(dim=1)
    noise = error * float(lengths.median()) if len(lengths) else error
    return Round(origin, torch.cat([differences, rows[:measured]]), missing, mask, noise)


def as_round(system: OpenSystem, mask: Tensor) -> Round:
    """Equations of another attack, which say all there is about their span."""
    return Round(system.origin, system.free, 0, mask, float(system.noise.median()))


class Equations(NamedTuple):
    """x_i ∈ origin_i + span(rows)."""

    origin: Tensor  # (N, P)
    rows: Tensor  # (q, P) orthonormal
    noise: float


def equations_of(rounds: Sequence[Round]) -> list[Equations]:
    """One for a round that knows its span; otherwise one with every other round, in the sum of both spans."""
    equations = []
    for number, first in enumerate(rounds):
        if first.missing == 0:
            equations.append(Equations(first.origin, first.rows, first.noise))
            continue
        for place, second in enumerate(rounds):
            if place != number:
                equations.append(_in_both_spans(first, second))
    return equations


def _in_both_spans(first: Round, second: Round) -> Equations:
    """The equations of a round in span(F_r) + span(F_s), from the patches that are unmasked in both rounds.

    What these patches have beyond that span is noise, that of the spans included.
    """
    certain = torch.linalg.qr(torch.cat([first.rows, second.rows]).T)[0].T
    rest = (first.origin - second.origin)[~(first.mask | second.mask)]
    rest = rest - (rest @ certain.T) @ certain
    beyond = torch.linalg.svd(rest, full_matrices=False)[2][: first.missing + second.missing]
    excess = (rest - (rest @ beyond.T) @ beyond).norm(dim=1)
    noise = float(excess.median()) / max(rest.shape[1] - len(certain) - len(beyond), 1) ** 0.5 if len(excess) else 0.0
    return Equations(first.origin, torch.cat([certain, beyond]), max(first.noise, second.noise, noise))


def solve_rounds(view: View, equations: Sequence[Equations], hidden: Tensor) -> Tensor:
    """(N, P) patches; more noise is assumed as long as the rounds contradict each other and the patches are rougher
    than pictures are and not of whole levels.

    Errors of a span escape the estimate of the noise: they grow with how far a round moves a patch along its span.
    A picture whose own gradient explains the update is believed whatever it looks like. `hidden` (N,): the patches that
    are masked in every round.
    """
    for attempt in range(MAX_ATTEMPTS):
        noisier = [one._replace(noise=4.0**attempt * one.noise) for one in equations]
        system = intersect(view, noisier)
        solution = solve_open(view, system.origin, system.free)
        patches, whole = snap(view, solution)
        picture = view.picture(patches)
        if contradiction(noisier, system, solution) < MAX_CONTRADICTION or view.prior.plausible(picture):
            break
        if float(whole.double().mean()) > 0.5 or explains(view, picture):
            break
    return patches if bool(whole.all()) else snap(view, _whole_points(view, noisier, patches, hidden))[0]


def _whole_points(view: View, equations: Sequence[Equations], patches: Tensor, hidden: Tensor) -> Tensor:
    """(N, P) patches, and integer points of what is open where they are certain (with fpylll).

    Where nothing is open, patches that are not whole are wrong in directions that the rounds barely decide: these are
    left open too, as far as that gives more patches an integer point.
    """
    if not can_reduce():
        return patches
    best: Cosets | None = None
    for attempt in range(MAX_LOOSER):
        system = intersect(view, [one._replace(noise=4.0**attempt * one.noise) for one in equations])
        if len(system.free) > MAX_WHOLE:
            break
        solution = snap(view, solve_open(view, system.origin, system.free))[0]
        cosets = find_cosets(view, system, to_levels(view, solution), hidden)
        if best is None or int(cosets.solved.sum()) > int(best.solved.sum()):
            best, patches = cosets, solution
        if bool(cosets.solved.all()) or (attempt == 0 and len(system.free) > 0):
            break
    if best is None:
        return patches
    answer = to_levels(view, patches)
    return to_patches(view, choose_points(view, best, answer).levels)


def intersect(view: View, equations: Sequence[Equations]) -> OpenSystem:
    """The minimum of Σ_r |(x_i − a_i^r) off span(F_r)|² / σ_r².

    Directions in which all rounds together know less than the prior stay open.
    """
    identity = torch.eye(equations[0].origin.shape[1], dtype=torch.float64)
    certainty = torch.zeros_like(identity)
    pull = torch.zeros_like(equations[0].origin)
    for origin, rows, noise in equations:
        off = (identity - rows.T @ rows) / noise**2
        certainty += off
        pull += origin @ off
    values, vectors = torch.linalg.eigh(certainty)
    modes = PatchModes(view)
    stiffness = (modes.to(vectors.T).square() * modes.values).sum(1)  # of the prior along these directions
    closed = values > MIN_CERTAINTY * stiffness
    certain = vectors[:, closed]
    origin = (pull @ certain / values[closed]) @ certain.T
    noise = origin.new_full((len(origin),), min(one.noise for one in equations))
    condition = float(values[-1] / values[closed].min()) if bool(closed.any()) else float("inf")
    return OpenSystem(origin, vectors[:, ~closed].T, noise, condition)


def contradiction(equations: Sequence[Equations], system: OpenSystem, patches: Tensor) -> float:
    """How far the solution is from what the rounds say, in deviations of their noise: about 1 if the noise is right.

    Of the median patch. Infinite where the rounds together have no equation too many.
    """
    size = patches.shape[1]
    surplus = sum(size - len(rows) for _, rows, _ in equations) - (size - len(system.free))
    if surplus <= 0:
        return float("inf")
    squares = torch.zeros_like(patches[:, 0])
    for origin, rows, noise in equations:
        rest = patches - origin
        squares += (rest - (rest @ rows.T) @ rows).square().sum(1) / noise**2
    return float((squares / surplus).sqrt().median())


def open_dimensions(equations: Sequence[Equations]) -> int:
    """How many dimensions all rounds leave open."""
    identity = torch.eye(equations[0].rows.shape[1], dtype=torch.float64)
    closed = torch.stack([identity - rows.T @ rows for _, rows, _ in equations]).sum(0)
    return int((torch.linalg.eigvalsh(closed) < 1e-6).sum())
