"""Combinations of pixels that hold nothing hidden: short integer relations, by lattice reduction (server/hidden.py).

A combination c of pixel columns is one if (Kᵀ)⁺ ∂L/∂W c is integer and ∂L/∂W c is zero off the rows of K. In the basis

    (c, a)  ↦  (c, small · a, ((Kᵀ)⁺ ∂L/∂W c − a) / noise, off-rows of ∂L/∂W c / noise)

of integer c and a these are the short vectors. How short they must be, counting says: of all combinations of a length
none may be expected to fit by chance.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.privacy.server.columns import MARGIN, MIN_NOISE, WIDE, Columns
from mjp.privacy.server.integers import reduce_rows

UNIT = 2.0**-10  # to which the rows of a reduction are rounded
ROWS = 40  # of (Kᵀ)⁺, those with the least noise, that must be integer; more where K leaves some open
SHARP = 3.0  # deviations of the noise that weigh as much as a coefficient of one
DAMPING = 1e-2  # weight of the integers a beside the coefficients c
EXCESS = 4.0  # of a misfit over the noise
CONFIRMED = 1.5  # the same in all equations, over the median


def find_relations(columns: Columns, mixed: Tensor, samples: Tensor, least: int) -> Tensor:
    """(r, m) independent relations of (P, m) samples of the pixel columns; `mixed` (D, m): of the samples.

    At least so many there must be: fewer are not worth anything.
    """
    relations = _candidates(columns, mixed, samples)
    return relations[:0] if len(relations) < least else _confirmed(columns, mixed, samples, relations, least)


def _candidates(columns: Columns, mixed: Tensor, samples: Tensor) -> Tensor:
    """(r, m) relations by some of the equations."""
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


def _confirmed(columns: Columns, mixed: Tensor, samples: Tensor, relations: Tensor, least: int) -> Tensor:
    """(r, m) combinations of relations that hold in all equations, to the noise.

    The rows that gave the relations may be blind to masked patches with gradients that are short or alike. In all
    equations together the misfit is so nearly the same that it tells long combinations from relations.
    """
    zero = mixed.new_zeros(len(columns.mixing), len(relations))
    values = columns.solve(mixed @ relations.T, zero, (samples @ relations.T).norm(dim=0))[0]
    misfits = (mixed @ relations.T - columns.mixing.T @ values).T / columns.noise  # (r, D)
    change = reduce_rows(torch.cat([relations, misfits / SHARP], 1), UNIT)
    relations = change @ relations
    misfit = (change @ misfits).norm(dim=1) / (samples @ relations.T).norm(dim=0)
    limit = max(CONFIRMED * float(misfit.median()), float(misfit.sort().values[least - 1]))
    return relations[misfit <= limit]
