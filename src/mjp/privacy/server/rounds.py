"""Several updates of one picture: what each round leaves open, and what is left open by all of them.

Round r determines every patch, in its own place, up to the differences of the patches that were masked in that round:
x_i ∈ a_i^r + span(F_r), masked patches included, since they are masked ones in another place. With K = (G_u, ∂L/∂E_unk)

    ∂L/∂W = Kᵀ A + H·F_r        so a^r = (Kᵀ)⁺ ∂L/∂W, and what ∂L/∂W has off the rows of K is in span(F_r)

In a narrow network (N near D or above) that is only a part of span(F_r). The rest follows from a second round: for
patches that are unmasked in both, a_i^r − a_i^s is in span(F_r) + span(F_s), and so x_i ∈ a_i^r + span(F_r) + span(F_s)
for all s.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.privacy.server.choice import choose_points
from mjp.privacy.server.cosets import find_cosets
from mjp.privacy.server.integers import snap, to_levels, to_patches
from mjp.privacy.server.linear import OpenSystem, PatchModes, solve_open
from mjp.privacy.server.self_check import explains
from mjp.privacy.server.view import View

LINKED = 0.7  # overlap of row spaces: 1 for one picture; photographs of other things share their smooth part
MIN_CERTAINTY = 300.0  # over the prior's, of a direction that the equations decide
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


def open_round(view: View) -> Round:
    """What the position gradients of one update leave open."""
    mask = view.mask
    count = int(mask.sum())
    known = view.positions[~mask]
    if count:
        known = torch.cat([known, view.unknown.unsqueeze(0)])  # K (n, D)
    left, values, right = torch.linalg.svd(known, full_matrices=False)
    rank = int((values > MIN_VALUE * values[0]).sum())
    right = right[:rank]
    answers = left[:, :rank] @ ((right @ view.projection) / values[:rank].unsqueeze(1))  # A (n, P)
    origin = answers.new_zeros(len(mask), answers.shape[1])
    origin[~mask] = answers[: len(mask) - count]
    if count:
        origin[mask] = answers[-1]
    rest = view.projection - right.T @ (right @ view.projection)
    excess, rows = torch.linalg.svd(rest, full_matrices=False)[1:]
    width = len(view.weight) - 1  # LayerNorm
    certain = max(min(width - rank, count - 1), 0)
    missing = max(count - 1, 0) - certain + len(known) - rank
    floor = view.resolution / 100 * float(view.projection.square().mean().sqrt())
    spare = (width - rank - certain) * (answers.shape[1] - certain)
    error = max(float(excess[certain:].norm()) / spare**0.5 if spare > 0 else 0.0, floor)
    noise = error * float((left[:, :rank] / values[:rank]).norm(dim=1).median())
    return Round(origin, rows[:certain], missing, mask, noise)


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
    """(N, P) patches; more noise is assumed as long as they are rougher than pictures are and not of whole levels.

    Errors of a span escape the estimate of the noise: they grow with how far a round moves a patch along its span.
    A picture whose own gradient explains the update is believed whatever it looks like. `hidden` (N,): the patches that
    are masked in every round.
    """
    for attempt in range(MAX_ATTEMPTS):
        system = intersect(view, [one._replace(noise=4.0**attempt * one.noise) for one in equations])
        patches, whole = snap(view, solve_open(view, system.origin, system.free))
        picture = view.picture(patches)
        if view.prior.plausible(picture) or float(whole.double().mean()) > 0.5 or explains(view, picture):
            break
    return snap(view, _whole_points(view, system, patches, hidden))[0]


def _whole_points(view: View, system: OpenSystem, patches: Tensor, hidden: Tensor) -> Tensor:
    """(N, P) patches, and integer points of what is open where they are certain (with fpylll)."""
    if not 0 < len(system.free) <= MAX_WHOLE or find_spec("fpylll") is None:
        return patches
    answer = to_levels(view, patches)
    cosets = find_cosets(view, system, answer)._replace(decoys=hidden)
    return to_patches(view, choose_points(view, cosets, answer).levels)


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


def open_dimensions(equations: Sequence[Equations]) -> int:
    """How many dimensions all rounds leave open."""
    identity = torch.eye(equations[0].rows.shape[1], dtype=torch.float64)
    closed = torch.stack([identity - rows.T @ rows for _, rows, _ in equations]).sum(0)
    return int((torch.linalg.eigvalsh(closed) < 1e-6).sum())
