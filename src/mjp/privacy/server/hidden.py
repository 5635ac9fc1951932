"""Rows of a mixture that nobody sends, found because what they mix are integers: a hidden lattice.

In grey levels ∂L/∂W = Kᵀ A + Hᵀ V with K (n, D) public, A (n, P) integer; H (h, D) and V (h, P), V integer, are hidden:
the gradients of masked patches and their differences. Where K has nearly D rows or more, nothing of V is left off its
rows, and real numbers say nothing. But take combinations of pixel columns with small integer coefficients c:

    V c = 0   ⇒   (Kᵀ)⁺ ∂L/∂W c = A c is integer,   and what ∂L/∂W c has off the rows of K is zero

In dozens of rows that is no chance, so lattice reduction finds all such c on some columns (Nguyen and Stern's
orthogonal lattice). The vectors orthogonal to them are V there, up to a change of basis; A follows up to integer
combinations of V, and H from both. With H the mixture is public, and server/columns.py solves all columns.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.privacy.server.columns import MIN_VALUE, Columns
from mjp.privacy.server.integers import nearest_points, reduce_lattice, reduce_rows

UNIT = 2.0**-10  # to which the rows of a reduction are rounded
FAR = 1e8  # weight of what is off a span, in reductions that look for the integer vectors within
ROWS = 40  # of (Kᵀ)⁺, beyond the open ones, that must be integer in a relation
MORE = 16  # combinations of pixels beyond two and a half times the hidden rows
EXCESS = 4.0  # of the misfit of a relation over the noise
CONFIRMED = 2.0  # the same in all equations
DAMPING = 1e-2  # weight of the integers that a relation gives, beside its coefficients
MIN_NOISE = 1e-4  # levels
WIDE = (2 * math.pi * math.e) ** 0.5  # deviations that a Gaussian is wide
MARGIN = 30.0  # nats by which relations by chance are improbable
MAX_TURNS = 4
SINGLE = 3  # pixels among the samples
POOL = 4  # times as many differences of pixels are looked at as are taken
SHARP = 3.0  # deviations of the noise that weigh as much as a coefficient of one


class Mixture(NamedTuple):
    """∂L/∂W = `mixing`ᵀ · `points` in grey levels."""

    mixing: Tensor  # (n + h, D): K, then H in some basis
    points: Tensor  # (n + h, P) integer: A up to integer combinations of V, then V
    solved: Tensor  # (P,) bool: which columns


def uncover(mixing: Tensor, mixed: Tensor, most: int, pairs: Tensor, *, target: Tensor, noise: float) -> Mixture | None:
    """The mixture with at most `most` hidden rows beside K = `mixing`, if integers give it away.

    `pairs` (2, c): numbers of neighbouring pixels; `target` (n, P): near which A is; `noise`: of the numbers of ∂L/∂W.
    """
    columns = Columns(mixing, noise)
    mixture = Mixture(mixing, *columns.solve(mixed, target))
    special = torch.zeros(0, dtype=torch.long)  # pixels that hold more than others
    for _ in range(MAX_TURNS):
        if bool(mixture.solved.all()):
            return mixture
        samples = _samples(columns, mixed, pairs, special, int(2.5 * most) + MORE)
        hidden = _hidden_rows(columns, mixed @ samples, most, samples)
        if hidden is None:
            return None
        mixture = _solve(torch.cat([mixing, hidden]), mixed, len(mixing), target, noise)
        waiting = (~mixture.solved).nonzero()[:, 0]
        special = torch.cat([special, waiting[: max(most, MORE)]]).unique()
    return None


def _solve(mixing: Tensor, mixed: Tensor, count: int, target: Tensor, noise: float) -> Mixture:
    """Solve the columns; what is solved makes the hidden rows (those beyond `count`) sharper, and then more is."""
    target = torch.cat([target, target.new_zeros(len(mixing) - count, target.shape[1])])
    before = -1
    while True:
        points, solved = Columns(mixing, noise).solve(mixed, target)
        if int(solved.sum()) <= before or len(mixing) == count or not bool(solved.any()):
            return Mixture(mixing, points, solved)
        before = int(solved.sum())
        rest = mixed[:, solved] - mixing[:count].T @ points[:count, solved]
        hidden = torch.linalg.lstsq(points[count:, solved].T, rest.T, driver="gelsd").solution
        mixing = torch.cat([mixing[:count], hidden])
        if bool(solved.all()):
            return Mixture(mixing, points, solved)


def _hidden_rows(columns: Columns, mixed: Tensor, most: int, samples: Tensor) -> Tensor | None:
    """(h, D) hidden rows that mix (P, m) samples of the columns into `mixed` (D, m)."""
    relations = _confirmed(columns, mixed, samples, _relations(columns, mixed, samples))
    count = samples.shape[1] - len(relations)
    if not 0 < count <= most:
        return None
    complete = _completed(relations)
    inverse = torch.linalg.inv(complete).round()
    if not torch.equal(complete @ inverse, torch.eye(len(complete), dtype=inverse.dtype)):
        return None
    relations, within = complete[:-count], inverse[:, -count:].T  # V (h, m), on the samples
    length = (samples @ relations.T).norm(dim=0)
    zero = mixed.new_zeros(len(columns.mixing), len(relations))
    values, holds = columns.solve(mixed @ relations.T, zero, length)
    if not bool(holds.all()):
        return None
    within = reduce_lattice(within @ within.T) @ within
    points = values @ inverse[:, :-count].T  # A (n, m), up to integer combinations of V
    identity = torch.eye(points.shape[1], dtype=points.dtype)
    points = nearest_points(points, within, identity, torch.zeros_like(points), 1)[:, 0]
    rest = mixed - columns.mixing.T @ points
    return torch.linalg.lstsq(within.T, rest.T).solution


def _samples(columns: Columns, mixed: Tensor, pairs: Tensor, special: Tensor, count: int) -> Tensor:
    """(P, m) independent combinations of pixels that hold something hidden: `count` differences of neighbours, which
    are small, a few pixels, and the special ones.
    """
    identity = torch.eye(mixed.shape[1], dtype=mixed.dtype)
    pairs = pairs[:, torch.randperm(pairs.shape[1], generator=torch.Generator().manual_seed(0))]
    single = torch.cat([special, pairs[0, -SINGLE:]]).unique()
    pairs = pairs[:, ~torch.isin(pairs, single).any(0)][:, : POOL * count]
    differences = identity[:, pairs[1]] - identity[:, pairs[0]]
    zero = mixed.new_zeros(len(columns.mixing), differences.shape[1])
    empty = columns.solve(mixed @ differences, zero, differences.norm(dim=0))[1]
    return torch.cat([identity[:, single], differences[:, ~empty][:, :count]], 1)


def _relations(columns: Columns, mixed: Tensor, samples: Tensor) -> Tensor:
    """(r, m) integer combinations of the samples that hold nothing hidden; `mixed` (D, m)."""
    tests = _tests(columns, mixed)
    size, rows = mixed.shape[1], len(tests.whole)
    misfits = torch.cat([torch.cat([tests.whole @ tests.fractions, tests.outside]).T, -tests.padded], 0)  # (m + s, e)
    start = torch.eye(size + rows, dtype=mixed.dtype)
    start[:size, size:] = tests.fractions.T.round()  # smaller numbers to begin with
    weights = torch.ones_like(start[0])
    weights[size:] = DAMPING
    reduced = reduce_rows(torch.cat([start * weights, start @ misfits / SHARP], 1), UNIT) @ start
    relations = reduced[:, :size]
    length = (samples @ relations.T).norm(dim=0)
    misfit = (reduced @ misfits).norm(dim=1) / misfits.shape[1] ** 0.5
    surprise = tests.surprise(relations, reduced[:, size:], misfit.maximum(length))
    return relations[(length > 0) & (misfit < EXCESS * length) & (surprise > MARGIN)]


class _Tests(NamedTuple):
    """What a relation c must satisfy: `fractions` c integer up to `whole`, and `outside` c zero, in deviations."""

    fractions: Tensor  # (s, m) levels
    whole: Tensor  # (s, s) of the errors of integers: off what K leaves open, in deviations
    outside: Tensor  # (o, m) in deviations
    spread: Tensor  # (s,) levels
    open: int  # dimensions that K leaves open

    @property
    def padded(self) -> Tensor:
        return torch.cat([self.whole, self.whole.new_zeros(len(self.outside), len(self.whole))]).T

    def surprise(self, relations: Tensor, integers: Tensor, length: Tensor) -> Tensor:
        """(r,) nats by which it is improbable that any combination as short satisfies them by chance.

        `integers` (r, s): what the fractions are near to; `length` (r,): of the noise over that of one pixel.
        """
        size = relations.norm(dim=1)
        count = relations.shape[1]
        volume = count / 2 * math.log(math.pi) - math.lgamma(count / 2 + 1) + count * size.log()
        volume += self.open * integers.norm(dim=1).clamp(min=1).log()
        chance = (WIDE * torch.outer(length, self.spread)).clamp(max=1).log().sum(1)
        chance *= 1 - self.open / len(self.spread)
        typical = torch.outer(size, self.outside.norm(dim=1)) / count**0.5
        chance += (WIDE * length.unsqueeze(1) / typical).clamp(max=1).log().sum(1)
        return -(volume + chance)


def _tests(columns: Columns, mixed: Tensor) -> _Tests:
    left, values, right = torch.linalg.svd(columns.mixing)
    rank = columns.rank
    inverse = left[:, :rank] / values[:rank] @ right[:rank]
    spread = (columns.noise * inverse.norm(dim=1)).clamp(min=MIN_NOISE)
    rows = spread.argsort()[: ROWS + 2 * (len(left) - rank)]
    inside = torch.linalg.qr(left[rows][:, rank:])[0]
    off = torch.eye(len(rows), dtype=mixed.dtype) - inside @ inside.T
    rest = right[rank:] @ mixed
    strengths, directions = torch.linalg.svd(rest, full_matrices=False)[1:]
    outside = (strengths.unsqueeze(1) * directions)[:-1]  # without what LayerNorm takes away
    fractions, deviations = inverse[rows] @ mixed, spread[rows]
    return _Tests(fractions, off / deviations.unsqueeze(1), outside / columns.noise, deviations, len(left) - rank)


def _confirmed(columns: Columns, mixed: Tensor, samples: Tensor, relations: Tensor) -> Tensor:
    """(r, m) combinations of relations that hold in all equations, to the noise.

    The rows that gave the relations may be blind to masked patches with gradients that are short or alike.
    """
    if len(relations) == 0:
        return relations
    zero = mixed.new_zeros(len(columns.mixing), len(relations))
    values = columns.solve(mixed @ relations.T, zero, (samples @ relations.T).norm(dim=0))[0]
    misfits = (mixed @ relations.T - columns.mixing.T @ values).T / columns.noise  # (r, D)
    change = reduce_rows(torch.cat([relations, misfits / SHARP], 1), UNIT)
    relations = change @ relations
    misfit = (change @ misfits).norm(dim=1) / misfits.shape[1] ** 0.5
    return relations[misfit < CONFIRMED * (samples @ relations.T).norm(dim=0)]


def _completed(relations: Tensor) -> Tensor:
    """(m, m) basis of Z^m whose first rows are a basis of the integer vectors in the span of (r, m) relations."""
    inside = torch.linalg.qr(relations.T)[0]
    identity = torch.eye(relations.shape[1], dtype=relations.dtype)
    off = identity - inside @ inside.T
    basis = reduce_rows(torch.cat([identity, FAR * off], 1), UNIT)
    return basis[(basis @ off).norm(dim=1).argsort(stable=True)]
