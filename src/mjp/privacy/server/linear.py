"""Most probable pictures under linear equations: the shapes in which gradients pose them, and one solver.

    mixed    Gᵀ X = M + noise                  every pixel column is mixed over the patches by a known G
    spanned  X = Z B, A Zᵀ = C + noise         every patch lies in a common span B, under equations of its own
    open     X = X₀ + Z B, Z free              every patch is known up to a common subspace B

All minimise (misfit / noise) + (distance from the prior), by conjugate gradients; the preconditioner is the exact
solution of the same problem without the coupling between patches, so a few dozen steps suffice.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from mjp.pictures.patches import patchify
from mjp.pictures.tensors import per_channel
from mjp.privacy.server.self_check import explains
from mjp.privacy.server.view import View

STEPS, TOLERANCE, RATIO = 60, 1e-7, 1e12
PATIENCE, EXACT = 16, 1e-3  # other pictures and masked patches leave far more than this unexplained


def calm(view: View, solve: Callable[[float], Tensor], noise: float) -> tuple[Tensor, float]:
    """Solve, with more noise assumed as long as the result is wilder than pictures are.

    Errors that are not white (another picture in the batch, masked patches) hide from an estimate of the noise, but
    not here. Equations that hold to three digits are believed whatever the picture looks like, and so is one whose
    own gradient explains the update. Gives X (N, P) and the noise, for equations of unit scale, at which it was taken.
    """
    for _ in range(PATIENCE):
        found = solve(noise)
        if noise < EXACT or view.prior.plausible(view.picture(found)) or explains(view, view.picture(found)):
            break
        noise *= 4
    return found, noise


def solve_mixed(
    view: View, mixing: Tensor, mixed: Tensor, noise: Tensor, white: float = 0.0, times: float = 1.0
) -> Tensor:
    """The most probable X (N, P) for G = `mixing` (N, D) and M = `mixed` (D, P).

    `noise` (P,): deviation of the noise in M for each mode of a patch's pixels; `white`: that of the noise in G;
    `times`: how many times worse M is than that.
    """
    # Gᵀ = left · diag(values) · modes: in the coordinates Y = modes·X·pixel the equations fall apart into single ones
    left, values, modes = torch.linalg.svd(mixing.T, full_matrices=False)  # (D, N), (N,), (N, N)
    values = denoised(values, mixing.shape, white)
    pixel, start = PatchModes(view), view.patches(view.prior.mean)
    seen = pixel.to(left.T @ mixed - values.unsqueeze(1) * (modes @ start))  # (N, P)
    weight = values.unsqueeze(1) / (noise**2 + _others(view, seen, values, pixel)) / times**2
    certainty, target = values.unsqueeze(1) * weight, weight * seen

    def operator(y: Tensor) -> Tensor:
        return certainty * y + pixel.to(modes @ _precision(view, modes.T @ pixel.back(y)))

    found = conjugate_gradients(operator, target, lambda y: y / (certainty + pixel.values))
    return start + modes.T @ pixel.back(found)


def _others(view: View, seen: Tensor, values: Tensor, pixel: "PatchModes") -> Tensor | float:
    """(N, P) variances that the other pictures of a batch add: like pictures in their pixels.

    Each mode shows as much as there is of it beyond what one picture explains; it is no less than if the rows of G were
    shared out evenly, and independent.
    """
    if view.facts.batch == 1:
        return 0.0
    shown = (seen.square() / pixel.variances).mean(1)  # (N,) in units of the prior's variance
    least = 2 * (view.facts.batch - 1) / view.facts.batch * values.square()
    return (shown - values.square()).maximum(least).unsqueeze(1) * pixel.variances


def denoised(values: Tensor, shape: torch.Size, white: float) -> Tensor:
    """Singular values of a matrix without what white noise added to them (Gavish and Donoho 2017)."""
    rows, columns = (n * white**2 for n in shape)
    squared = values.square()
    kept = ((squared - rows - columns).square() - 4 * rows * columns).clamp(min=0).sqrt() / values.clamp(min=1e-300)
    return torch.where(values > rows**0.5 + columns**0.5, kept, torch.zeros_like(kept))


def noise_of(view: View, mixing: Tensor, mixed: Tensor) -> Tensor:
    """(P,) deviations for `solve_mixed`: what the D − N equations too many cannot explain, mode by mode.

    Noise on the numbers is alike in all modes. Other pictures in the batch, or patches whose row of G is missing, look
    like pictures: most of them in the smooth modes.
    """
    basis = torch.linalg.svd(mixing, full_matrices=False)[2]  # (N, D): orthonormal rows
    excess = PatchModes(view).to(mixed - basis.T @ (basis @ mixed))
    variance = excess.square().sum(0) / max(len(mixed) - len(mixing), 1)
    floor = view.resolution / 100 * float(mixed.square().mean().sqrt())
    return variance.sqrt().clamp(min=floor)


def solve_spanned(view: View, basis: Tensor, mixing: Tensor, target: Tensor, noise: float) -> Tensor:
    """The most probable X = Z·basis with mixing Zᵀ = target (·, N) up to white noise; basis (r, P) orthonormal."""
    start = view.patches(view.prior.mean)
    offset = start @ basis.T  # (N, r)
    # beyond this ratio of certainty to prior, rounding would leave nothing of the prior where the equations are silent
    noise = max(
        noise, RATIO**-0.5 * float(torch.linalg.matrix_norm(mixing, 2) / PatchModes(view).values.median().sqrt())
    )
    certainty = mixing.T @ mixing / noise**2
    known = (target - mixing @ offset.T).T @ mixing / noise**2  # (N, r)
    outside = _precision(view, start - offset @ basis) @ basis.T  # the mean may lie outside the span
    return offset @ basis + _in_span(view, basis, known + outside, certainty) @ basis


def solve_open(view: View, known: Tensor, basis: Tensor) -> Tensor:
    """The most probable X = known + Z·basis, basis (q, P) with orthonormal rows."""
    if len(basis) == 0:
        return known
    pull = -_precision(view, known - view.patches(view.prior.mean)) @ basis.T  # (N, q)
    return known + _in_span(view, basis, pull, 0.0) @ basis


def _in_span(view: View, basis: Tensor, pull: Tensor, certainty: Tensor | float) -> Tensor:
    """Z (N, q) at which certainty and prior balance the pull."""
    pixel = PatchModes(view)
    rotated = pixel.to(basis)
    block = torch.linalg.cholesky(rotated * pixel.values @ rotated.T + certainty)  # (q, q)

    def operator(z: Tensor) -> Tensor:
        moved = _precision(view, z @ basis) @ basis.T
        return moved + z @ certainty if isinstance(certainty, Tensor) else moved

    return conjugate_gradients(operator, pull, lambda z: torch.cholesky_solve(z.T, block).T)


def conjugate_gradients(
    operator: Callable[[Tensor], Tensor], target: Tensor, precondition: Callable[[Tensor], Tensor]
) -> Tensor:
    """x with operator(x) = target, for a symmetric positive operator."""
    x = torch.zeros_like(target)
    residual = target.clone()
    ready = precondition(residual)
    direction, energy = ready, (residual * ready).sum()
    enough = TOLERANCE**2 * energy
    for _ in range(STEPS):
        if not energy > enough:
            break
        moved = operator(direction)
        step = energy / (direction * moved).sum()
        x = x + step * direction
        residual = residual - step * moved
        ready = precondition(residual)
        last, energy = energy, (residual * ready).sum()
        direction = ready + energy / last * direction
    return x


def _precision(view: View, patches: Tensor) -> Tensor:
    """Inverse prior covariance on normalised patches (N, P)."""
    picture = view.picture(patches) - per_channel(view.facts.mean, patches)
    return patchify(view.prior.precision(picture) * per_channel(view.facts.std, patches), view.patch)


class PatchModes:
    """Eigenvectors of the prior's inverse covariance within a patch: colours ⊗ rows ⊗ columns, so three small ones.

    values (P,): the inverse covariance of a mode while the patches around stand still; variances (P,): how much a mode
    varies from picture to picture.
    """

    def __init__(self, view: View) -> None:
        std = view.weight.new_tensor(view.facts.std)
        inverse, spread = view.prior.patch_factors(view.patch), view.prior.patch_covariances(view.patch)
        inverse = (std.unsqueeze(1) * inverse[0] * std, *inverse[1:])
        spread = (spread[0] / std.unsqueeze(1) / std, *spread[1:])
        (c, self.colours), (h, self.rows), (w, self.columns) = (torch.linalg.eigh(factor) for factor in inverse)
        self.values = torch.einsum("c,h,w->chw", c, h, w).flatten()
        modes = (self.colours, self.rows, self.columns)
        each = [((factor @ mode) * mode).sum(0) for factor, mode in zip(spread, modes, strict=True)]
        self.variances = torch.einsum("c,h,w->chw", *each).flatten()
        self.shape = (len(c), len(h), len(w))

    def to(self, patches: Tensor) -> Tensor:
        """(N, P) → (N, P) coordinates."""
        x = patches.view(-1, *self.shape)
        x = self.rows.T @ x @ self.columns
        return torch.einsum("nchw,cd->ndhw", x, self.colours).flatten(1)

    def back(self, coordinates: Tensor) -> Tensor:
        x = coordinates.view(-1, *self.shape)
        x = self.rows @ x @ self.columns.T
        return torch.einsum("ndhw,cd->nchw", x, self.colours).flatten(1)
