"""Rows of a mixture that nobody sends, found because what they mix are integers: a hidden lattice.

In grey levels ∂L/∂W = Kᵀ A + Hᵀ V with K (n, D) public, A (n, P) integer; H (h, D) and V (h, P), V integer, are hidden:
the gradients of masked patches and their differences. Where K has nearly D rows or more, nothing of V is left off its
rows, and real numbers say nothing. But take combinations of pixel columns with small integer coefficients c:

    V c = 0   ⇒   (Kᵀ)⁺ ∂L/∂W c = A c is integer,   and what ∂L/∂W c has off the rows of K is zero

In dozens of rows that is no chance, so lattice reduction finds all such c on some columns (server/relations.py; the
orthogonal lattice of Nguyen and Stern). The vectors orthogonal to them are V there, up to a change of basis; A follows
up to integer combinations of V, and H from both. With H the mixture is public, and server/columns.py solves all
columns.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mjp.privacy.server.columns import Columns
from mjp.privacy.server.integers import nearest_points, reduce_lattice, reduce_rows
from mjp.privacy.server.relations import UNIT, find_relations

FAR = 1e8  # weight of what is off a span, in a reduction that looks for the integer vectors within
MORE = 16  # combinations of pixels beyond two and a half times the hidden rows
SINGLE = 3  # pixels among them
POOL = 4  # times as many differences of pixels are looked at as are taken
MAX_TURNS = 4


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
    relations = find_relations(columns, mixed, samples, max(mixed.shape[1] - most, 1))
    number = len(relations)
    if not 0 < mixed.shape[1] - number <= most:
        return None
    complete = _completed(relations)
    inverse = torch.linalg.inv(complete).round()
    if not torch.equal(complete @ inverse, torch.eye(len(complete), dtype=inverse.dtype)):
        return None
    relations, within = complete[:number], inverse[:, number:].T  # V (h, m), on the samples
    length = (samples @ relations.T).norm(dim=0)
    zero = mixed.new_zeros(len(columns.mixing), len(relations))
    values, holds = columns.solve(mixed @ relations.T, zero, length)
    if not bool(holds.all()):
        return None
    within = reduce_lattice(within @ within.T) @ within
    points = values @ inverse[:, :number].T  # A (n, m), up to integer combinations of V
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


def _completed(relations: Tensor) -> Tensor:
    """(m, m) basis of Z^m whose first rows are a basis of the integer vectors in the span of (r, m) relations."""
    inside = torch.linalg.qr(relations.T)[0]
    identity = torch.eye(relations.shape[1], dtype=relations.dtype)
    off = identity - inside @ inside.T
    basis = reduce_rows(torch.cat([identity, FAR * off], 1), UNIT)
    return basis[(basis @ off).norm(dim=1).argsort(stable=True)]
