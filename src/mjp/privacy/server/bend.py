"""Solve for open dimensions with the activations of the first MLP, which bend what linear equations leave straight.

Linear equations leave every patch open along a common span: x_i = a_i + z_i F. The activations h_i(x) of its token must
be in the span S of the rows of ∂L/∂W₂ (server/first_block.py). GELU is not linear, so h_i leaves S as soon as x_i is
wrong, in any direction of F:

    descend   minimise Σ_i |P h_i(x_1 … x_N)|² / s_i² + prior,   P projects off S
    polish    minimise |∂L/∂W₂ − GᵀH|² / e² + prior,             H = (h_1 … h_T), G the best for this H

by Gauss-Newton steps with conjugate gradients, since attention couples the patches. s_i is the present misfit of patch
i, so patches that fit dominate those that do not yet. To polish is to weigh tokens by what the noise e leaves of them:
the gradient of a token may be so small that S misses its activations.

Masked patches share E_unk, so each of their equations has as many solutions as there are masked patches. Two slots may
have run into one solution, or one into none: such slots start again from other patches of the picture.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import jvp, vjp

from mjp.privacy.server.first_block import FirstBlock
from mjp.privacy.server.linear import OpenSystem, PatchModes, conjugate_gradients, precision
from mjp.privacy.server.view import View

MAX_STEPS = 40  # of Gauss-Newton
MAX_INNER = 30  # of conjugate gradients in each
ENOUGH = 1e-2  # relative error of an inner problem
TRUST = 0.3  # of the present misfit that counts as noise
RESTARTS = 5  # rounds in which bad slots start again
MIN_GAIN = 0.5  # of the cost, without which the steps end: near a solution they gain far more
LOCAL_STEPS = 8
BAD = 20.0  # times the misfit of a typical unmasked patch
DISTINCT = 0.1  # distance of two patches, in normalised pixels (rms), that are not one and the same


Map = Callable[[Tensor], Tensor]


class Fit(NamedTuple):
    mixing: Tensor  # G (T, D)
    rest: Tensor  # (D, M) what is left of the gradient
    basis: Tensor  # (M, T) orthonormal columns that span H


class Bend:
    """`mask` (N,): the patches that share E_unk."""

    def __init__(self, view: View, system: OpenSystem, mask: Tensor) -> None:
        self.view = view
        self.origin = system.origin
        self.free = system.free
        self.mask = mask
        self.block = FirstBlock(view, mask)
        tokens = len(self.origin) + len(self.block.prefix)
        _, values, rows = torch.linalg.svd(self.block.gradient, full_matrices=False)
        self.rows = rows[:tokens]  # S (T, M)
        self.noise = _noise(view, self.block.gradient, values, tokens)  # e
        self.directions = view.weight @ self.free.T  # (D, q): F as tokens see it
        self.mean = view.patches(view.prior.mean)
        modes = PatchModes(view)
        rotated = modes.to(self.free)
        self.stiffness = rotated * modes.values @ rotated.T  # (q, q) of the prior
        scale = self.block.bent(self.block.mixed(self.mean)).square().mean().sqrt()
        self.floor = float(scale) * view.resolution  # of s

    def patches(self, weights: Tensor) -> Tensor:
        return self.origin + weights @ self.free

    def misfits(self, weights: Tensor) -> Tensor:
        """(N,) how far each patch is from its equations."""
        return self._residual(weights)[-len(self.origin) :].norm(dim=1)

    def unexplained(self, patches: Tensor) -> float:
        """The norm of what these patches leave of ∂L/∂W₂."""
        return float(self._fit((patches - self.origin) @ self.free.T).rest.norm())

    def run(self, patches: Tensor) -> Tensor:
        """(N, P) from a first guess to patches that satisfy the equations, or come as near as these steps lead."""
        weights = self._descend((patches - self.origin) @ self.free.T)
        for turn in range(RESTARTS):
            slots = self._bad_slots(weights)
            if len(slots) == 0:
                break
            attempt = self._descend(self._restart(weights, slots, turn))
            weights = attempt if self._cost(attempt) < self._cost(weights) else weights
        return self.patches(self._polish(weights))

    def _off(self, activations: Tensor) -> Tensor:
        return activations - (activations @ self.rows.T) @ self.rows

    def _activations(self, weights: Tensor) -> Tensor:
        """H (T, M)."""
        return self.block.bent(self.block.mixed(self.patches(weights)))

    def _residual(self, weights: Tensor) -> Tensor:
        return self._off(self._activations(weights))

    def _cost(self, weights: Tensor) -> float:
        """A sum of logarithms: what one patch that fits gains is not lost in the misfit of others."""
        return float((self.misfits(weights) + self.floor).log().sum())

    def _deviations(self, residual: Tensor) -> Tensor:
        """(n, 1) s of each patch."""
        return (TRUST * residual.norm(dim=1, keepdim=True) / math.sqrt(residual.shape[1])).clamp(min=self.floor)

    def _descend(self, weights: Tensor) -> Tensor:
        cost = self._cost(weights)
        for _ in range(MAX_STEPS):
            step = self._step(weights)
            length = 1.0
            while not (lower := self._cost(weights + length * step)) < cost and length > 0.1:
                length /= 2
            if not lower < cost:
                break
            weights = weights + length * step
            gain = cost - lower
            cost = lower
            if gain < MIN_GAIN:
                break
        return weights

    def _step(self, weights: Tensor) -> Tensor:
        """(N, q) a step of Gauss-Newton for `descend`."""
        residual, pull = _pullback(self._residual, weights)
        certainty = self._deviations(residual) ** -2  # (T, 1)

        def operator(move: Tensor) -> Tensor:
            return pull(certainty * jvp(self._residual, (weights,), (move,))[1])

        return self._solve_step(weights, operator, -pull(certainty * residual), certainty, self._off)

    def _polish(self, weights: Tensor) -> Tensor:
        rest = float(self._fit(weights).rest.norm())
        for _ in range(MAX_STEPS):
            attempt = weights + self._polishing_step(weights)
            lower = float(self._fit(attempt).rest.norm())
            if not lower < rest:
                break
            weights = attempt
            slow = lower > 0.9 * rest
            rest = lower
            if slow:
                break
        return weights

    def _fit(self, weights: Tensor) -> "Fit":
        """∂L/∂W₂ = GᵀH by least squares."""
        basis, upper = torch.linalg.qr(self._activations(weights).T)  # (M, T), (T, T)
        along = self.block.gradient @ basis
        mixing = torch.linalg.solve_triangular(upper, along.T, upper=True)
        return Fit(mixing, self.block.gradient - along @ basis.T, basis)

    def _polishing_step(self, weights: Tensor) -> Tensor:
        """(N, q) a step of Gauss-Newton in which G follows H (variable projection, Kaufman 1975)."""
        mixing, rest, basis = self._fit(weights)
        deviation = max(self.noise, TRUST * float(rest.square().mean().sqrt()))
        gram = mixing @ mixing.T / deviation**2  # (T, T)
        _, pull = _pullback(self._activations, weights)

        def off(activations: Tensor) -> Tensor:
            return activations - (activations @ basis) @ basis.T

        def operator(move: Tensor) -> Tensor:
            return pull(off(gram @ jvp(self._activations, (weights,), (move,))[1]))

        target = pull(off(mixing @ rest) / deviation**2)
        return self._solve_step(weights, operator, target, gram.diagonal().unsqueeze(1), off)

    def _solve_step(self, weights: Tensor, misfit: Map, target: Tensor, certainty: Tensor, off: Map) -> Tensor:
        """(N, q) the minimum of a misfit, given by its second derivative and `target`, its pull, plus the prior.

        certainty (T, 1): of each token by itself, for the preconditioner.
        """
        patches = self.patches(weights)
        count = len(self.origin)
        slopes = self.block.slopes(self.block.mixed(patches)[-count:], self.directions).transpose(1, 2)
        slopes = off(slopes)  # (N, q, M)
        alone = slopes @ slopes.transpose(1, 2) * certainty[-count:].unsqueeze(2) + self.stiffness
        factor = torch.linalg.cholesky(alone)

        def operator(move: Tensor) -> Tensor:
            return misfit(move) + precision(self.view, move @ self.free) @ self.free.T

        def precondition(rest: Tensor) -> Tensor:
            return torch.cholesky_solve(rest.unsqueeze(2), factor)[..., 0]

        target = target - precision(self.view, patches - self.mean) @ self.free.T
        return conjugate_gradients(operator, target, precondition, steps=MAX_INNER, tolerance=ENOUGH)

    def _bad_slots(self, weights: Tensor) -> Tensor:
        """Masked slots without a solution, or with that of another slot; the worst first."""
        misfits = self.misfits(weights)
        slots = self.mask.nonzero()[:, 0]
        limit = BAD * float(misfits[~self.mask].median()) if bool((~self.mask).any()) else math.inf
        patches = self.patches(weights)
        accepted: list[Tensor] = []
        bad = []
        for slot in slots[misfits[slots].argsort()]:
            if float(misfits[slot]) > limit or not _is_new(patches[slot], accepted):
                bad.append(slot)
            else:
                accepted.append(patches[slot])
        return torch.stack(bad[::-1]) if bad else slots[:0]

    def _restart(self, weights: Tensor, slots: Tensor, turn: int) -> Tensor:
        """Weights in which other solutions stand in these slots: those that starts from all patches lead to.

        They are looked for in one slot, which changes from turn to turn, since attention makes the slots differ.
        """
        patches = self.patches(weights)
        slot = int(slots[turn % len(slots)])
        points, misfits = self._solve_slot(patches, slot, (patches - self.origin[slot]) @ self.free.T)
        rest = self.mask.clone()
        rest[slots] = False
        accepted = list(patches[rest])
        attempt = weights.clone()
        waiting = slots.tolist()
        for number in misfits.argsort().tolist():
            if waiting and _is_new(points[number], accepted):
                accepted.append(points[number])
                place = waiting.pop(0)
                attempt[place] = (points[number] - self.origin[place]) @ self.free.T
        return attempt

    def _solve_slot(self, patches: Tensor, slot: int, starts: Tensor) -> tuple[Tensor, Tensor]:
        """(n, P) solutions for one slot from (n, q) starts, the other patches as they are, and their (n,) misfits."""
        centre = (self.mean[slot] - self.origin[slot]) @ self.free.T
        for count in range(LOCAL_STEPS + 1):
            points = self.origin[slot] + starts @ self.free
            pictures = patches.repeat(len(points), 1, 1)
            pictures[:, slot] = points
            tokens = self.block.mixed(pictures)[:, slot - len(self.origin)]
            residual = self._off(self.block.bent(tokens))
            if count == LOCAL_STEPS:
                break
            slopes = self._off(self.block.slopes(tokens, self.directions).transpose(1, 2))  # (n, q, M)
            certainty = self._deviations(residual) ** -2
            normal = slopes @ slopes.transpose(1, 2) * certainty.unsqueeze(2) + self.stiffness
            pull = (slopes @ residual.unsqueeze(2))[..., 0] * certainty
            pull = pull + 0.05 * (starts - centre) @ self.stiffness  # a weak prior: the slot's neighbours do not count
            starts = starts - torch.linalg.solve(normal, pull.unsqueeze(2))[..., 0]
        return points, residual.norm(dim=1)


def _pullback(function: Map, point: Tensor) -> tuple[Tensor, Map]:
    """The value at a point, and the transposed derivative there."""
    value, pull, *_ = vjp(function, point)
    return value, lambda change: pull(change)[0]


def _is_new(patch: Tensor, others: list[Tensor]) -> bool:
    return all(float((patch - other).square().mean().sqrt()) > DISTINCT for other in others)


def _noise(view: View, gradient: Tensor, values: Tensor, rank: int) -> float:
    """Deviation of the numbers of a gradient, from its singular values beyond its rank."""
    width, length = gradient.shape
    floor = view.resolution / 100 * float(gradient.square().mean().sqrt())
    spare = (width - rank) * (length - rank)
    return max(float(values[rank:].norm()) / math.sqrt(spare), floor) if width > rank else floor
