"""Most probable pictures under linear equations: the three forms in which gradients pose them, and one solver.

    mixed    Gᵀ X = M + noise                  every pixel column is mixed over the patches by a public G
    spanned  X = Z B, A Zᵀ = C + noise         all patches are in a common span B, each with equations of its own
    open     X = X₀ + Z B, Z free              every patch is determined up to a common subspace B

All minimise (misfit / noise) + (distance from the prior), by conjugate gradients; the preconditioner is the exact
solution of the same problem without the coupling between patches, so a few dozen steps suffice.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mjp.pictures.patches import patchify, unpatchify
from mjp.pictures.tensors import per_channel
from mjp.privacy.server.self_check import explains
from mjp.privacy.server.view import View

MAX_STEPS = 60  # of conjugate gradients
TOLERANCE = 1e-7
FINE = 1e-10  # where the prior alone decides some directions, whose energy is small beside that of the others
MAX_RATIO = 1e12  # of certainty to prior: beyond it, rounding would leave nothing of the prior
MAX_ATTEMPTS = 16  # each with four times the noise of the last
MAX_DENSE = 256  # numbers of a patch up to which one matrix is faster than its three factors
EXACT = 1e-3  # noise below which equations hold: other pictures and masked patches leave far more unexplained


class OpenSystem(NamedTuple):
    """What linear equations say of every patch: X = origin + Z·free for some Z."""

    origin: Tensor  # (N, P) normalised
    free: Tensor  # (q, P), orthonormal rows
    noise: Tensor  # (N,) deviation of the equations of each patch, in normalised pixels
    condition: float


def solve_until_plausible(view: View, solve: Callable[[float], Tensor], noise: float) -> tuple[Tensor, float]:
    """Solve, assuming more noise as long as the result is rougher than pictures are.

    Errors that are not white (another picture in the batch, masked patches) escape an estimate of the noise, but show
    here. Equations that hold to three digits are believed whatever the picture looks like, and so is a picture whose
    own gradient explains the update. Returns X (N, P) and the accepted noise, for equations of unit scale.
    """
    for _ in range(MAX_ATTEMPTS):
        patches = solve(noise)
        if noise < EXACT or view.prior.plausible(view.picture(patches)) or explains(view, view.picture(patches)):
            break
        noise *= 4
    return patches, noise


def solve_mixed(
    view: View, mixing: Tensor, mixed: Tensor, noise: Tensor, white: float = 0.0, times: float = 1.0
) -> Tensor:
    """The most probable X (N, P) for G = `mixing` (N, D) and M = `mixed` (D, P).

    `noise` (P,): deviation of the noise in M for each mode of a patch's pixels; `white`: that of the noise in G;
    `times`: how many times worse M is than that.
    """
    # Gᵀ = left · diag(values) · modes: in the coordinates Y = modes·X·pixel every equation has one unknown
    left, values, modes = torch.linalg.svd(mixing.T, full_matrices=len(mixing) > len(mixed))  # (D, ·), (·,), (N, N)
    missing = len(mixing) - len(values)  # equations
    values = pad(denoised(values, mixing.shape, white), (0, missing))  # (N,)
    pixel = PatchModes(view)
    start = view.patches(view.prior.mean)
    observed = pixel.to(pad(left.T @ mixed, (0, 0, 0, missing)) - values.unsqueeze(1) * (modes @ start))  # (N, P)
    weight = values.unsqueeze(1) / (noise**2 + _other_pictures(view, observed, values, pixel)) / times**2
    certainty = values.unsqueeze(1) * weight

    def operator(y: Tensor) -> Tensor:
        return certainty * y + pixel.to(modes @ precision(view, modes.T @ pixel.back(y)))

    fine = FINE if missing or len(mixing) == len(mixed) else TOLERANCE
    solution = conjugate_gradients(
        operator, weight * observed, lambda y: y / (certainty + pixel.values), tolerance=fine
    )
    return start + modes.T @ pixel.back(solution)


def _other_pictures(view: View, observed: Tensor, values: Tensor, pixel: "PatchModes") -> Tensor | float:
    """(N, P) variances that the other pictures of a batch add: in their pixels they look like pictures.

    In each mode: what one picture does not explain, and at least what the others would add if the rows of G were
    independent and of equal length.
    """
    if view.info.batch == 1:
        return 0.0
    energy = (observed.square() / pixel.variances).mean(1)  # (N,) in units of the prior's variance
    least = 2 * (view.info.batch - 1) / view.info.batch * values.square()
    return (energy - values.square()).maximum(least).unsqueeze(1) * pixel.variances


def denoised(values: Tensor, shape: torch.Size, white: float) -> Tensor:
    """Singular values of a matrix without what white noise added to them (Gavish and Donoho 2017)."""
    rows, columns = (n * white**2 for n in shape)
    squared = values.square()
    signal = ((squared - rows - columns).square() - 4 * rows * columns).clamp(min=0).sqrt() / values.clamp(min=1e-300)
    return torch.where(values > rows**0.5 + columns**0.5, signal, torch.zeros_like(signal))


def noise_of(view: View, mixing: Tensor, mixed: Tensor) -> Tensor:
    """(P,) deviations for `solve_mixed`: what the D − N surplus equations leave unexplained, mode by mode.

    Noise on the numbers is the same in all modes. Other pictures in the batch, and patches whose row of G is missing,
    look like pictures: they are strongest in the smooth modes. With N ≥ D one equation is left: LayerNorm makes all
    gradients of tokens sum to zero over the width. It shows noise on the numbers alone.
    """
    floor = view.resolution / 100 * float(mixed.square().mean().sqrt())
    if len(mixing) >= len(mixed):
        excess = mixed.sum(0) / len(mixed) ** 0.5  # (P,)
        return torch.full_like(excess, max(float(excess.square().mean().sqrt()), floor))
    basis = torch.linalg.svd(mixing, full_matrices=False)[2]  # (N, D): orthonormal rows
    excess = PatchModes(view).to(mixed - basis.T @ (basis @ mixed))
    variance = excess.square().sum(0) / (len(mixed) - len(mixing))
    return variance.sqrt().clamp(min=floor)


def solve_spanned(view: View, basis: Tensor, mixing: Tensor, target: Tensor, noise: float) -> Tensor:
    """The most probable X = Z·basis with mixing Zᵀ = target (·, N) up to white noise; basis (r, P) orthonormal."""
    start = view.patches(view.prior.mean)
    offset = start @ basis.T  # (N, r)
    noise = max(
        noise, MAX_RATIO**-0.5 * float(torch.linalg.matrix_norm(mixing, 2) / PatchModes(view).values.median().sqrt())
    )
    certainty = mixing.T @ mixing / noise**2
    pull = (target - mixing @ offset.T).T @ mixing / noise**2  # (N, r)
    pull = pull + precision(view, start - offset @ basis) @ basis.T  # the mean may lie outside the span
    return offset @ basis + _in_span(view, basis, pull, certainty) @ basis


def solve_open(view: View, origin: Tensor, basis: Tensor) -> Tensor:
    """The most probable X = origin + Z·basis, basis (q, P) with orthonormal rows."""
    if len(basis) == 0:
        return origin
    pull = -precision(view, origin - view.patches(view.prior.mean)) @ basis.T  # (N, q)
    return origin + _in_span(view, basis, pull, 0.0) @ basis


def _in_span(view: View, basis: Tensor, pull: Tensor, certainty: Tensor | float) -> Tensor:
    """Z (N, q) at which certainty and prior balance the pull."""
    pixel = PatchModes(view)
    rotated = pixel.to(basis)
    block = torch.linalg.cholesky(rotated * pixel.values @ rotated.T + certainty)  # (q, q)

    def operator(z: Tensor) -> Tensor:
        moved = precision(view, z @ basis) @ basis.T
        return moved + z @ certainty if isinstance(certainty, Tensor) else moved

    return conjugate_gradients(operator, pull, lambda z: torch.cholesky_solve(z.T, block).T)


def conjugate_gradients(
    operator: Callable[[Tensor], Tensor],
    target: Tensor,
    precondition: Callable[[Tensor], Tensor],
    *,
    steps: int = MAX_STEPS,
    tolerance: float = TOLERANCE,
) -> Tensor:
    """x with operator(x) = target, for a symmetric positive operator."""
    x = torch.zeros_like(target)
    residual = target.clone()
    ready = precondition(residual)
    direction = ready
    energy = (residual * ready).sum()
    enough = tolerance**2 * energy
    for _ in range(steps):
        if not energy > enough:
            break
        moved = operator(direction)
        step = energy / (direction * moved).sum()
        x = x + step * direction
        residual = residual - step * moved
        ready = precondition(residual)
        last = energy
        energy = (residual * ready).sum()
        direction = ready + energy / last * direction
    return x


def precision(view: View, patches: Tensor) -> Tensor:
    """Inverse prior covariance on normalised patches (N, P)."""
    std = per_channel(view.info.std, patches)
    picture = unpatchify(patches, view.grid, view.patch) * std
    return patchify(view.prior.precision(picture) * std, view.patch)


class PatchModes:
    """Eigenvectors of the prior's inverse covariance within a patch: colours ⊗ rows ⊗ columns, so three small ones.

    values (P,): the inverse covariance of a mode given the surrounding patches; variances (P,): how much a mode varies
    from picture to picture.
    """

    def __init__(self, view: View) -> None:
        std = view.weight.new_tensor(view.info.std)
        inverse = view.prior.patch_factors(view.patch)
        spread = view.prior.patch_covariances(view.patch)
        inverse = (std.unsqueeze(1) * inverse[0] * std, *inverse[1:])
        spread = (spread[0] / std.unsqueeze(1) / std, *spread[1:])
        (c, self.colours), (h, self.rows), (w, self.columns) = (torch.linalg.eigh(factor) for factor in inverse)
        self.values = torch.einsum("c,h,w->chw", c, h, w).flatten()
        modes = (self.colours, self.rows, self.columns)
        variances = [((factor @ mode) * mode).sum(0) for factor, mode in zip(spread, modes, strict=True)]
        self.variances = torch.einsum("c,h,w->chw", *variances).flatten()
        self.shape = (len(c), len(h), len(w))
        small = len(self.values) <= MAX_DENSE
        self.dense = torch.kron(self.colours, torch.kron(self.rows, self.columns)) if small else None

    def to(self, patches: Tensor) -> Tensor:
        """(N, P) → (N, P) coordinates."""
        if self.dense is not None:
            return patches @ self.dense
        x = patches.view(-1, *self.shape)
        x = self.rows.T @ x @ self.columns
        return torch.einsum("nchw,cd->ndhw", x, self.colours).flatten(1)

    def back(self, coordinates: Tensor) -> Tensor:
        if self.dense is not None:
            return coordinates @ self.dense.T
        x = coordinates.view(-1, *self.shape)
        x = self.rows @ x @ self.columns.T
        return torch.einsum("ndhw,cd->nchw", x, self.colours).flatten(1)
