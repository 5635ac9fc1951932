"""Gradient matching: change pictures until their gradient is the update's (DLG, Inverting Gradients, GradViT).

    minimise over x    1 − cos(∇L(x), update)   or   ‖∇L(x) − update‖² / ‖update‖²
                       + tv · total variation + edges · steps across patch borders

Any batch, any defence. The labels come from the classifier's gradient; the mask of a single MJP picture is public and
is used. The search starts from the best closed-form result, from the mean picture, and from the mean picture with
noise. Pixels that do not look like a picture can match a gradient too, so every result is smoothed until it is no
rougher than public pictures; of these and the starts, the one that explains the update best is the answer. Where the
network does not tell places apart (no positions, or E_unk), neither can the search: read its score in any order. Second
derivatives of a ViT are slow on a CPU, so it is for small models.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cosine_similarity

from mjp.common.progress import Progress
from mjp.method.plan import Plan, identity_plan
from mjp.privacy.attacks import direct, span, subspace
from mjp.privacy.server.self_check import match, normalised, public_plan, recover_labels, simulate
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME = "matching"
TITLE = "gradient matching (knows the mask)"
HELP = "changes pixels until their gradient is the update's; for small models, takes minutes"
NEEDS = ()
MAX_PARAMETERS = 8_000_000  # that a CPU gets through
MAX_BATCH = 8
MAX_IDLE_STEPS = 100  # without progress before a start is given up
CLOSED_FORMS = (direct, subspace, span)


def run(view: View, *, blind: bool = False) -> Reconstruction:
    size = sum(p.numel() for p in view.model.parameters())
    if size > MAX_PARAMETERS and next(view.model.parameters()).device.type == "cpu":
        raise Refused(f"{size / 1e6:.0f} million parameters: matching takes hours on a CPU, use a GPU or a closed form")
    if view.info.batch > MAX_BATCH:
        raise Refused(f"the update is of {view.info.batch} pictures, matching is for at most {MAX_BATCH}")
    labels = recover_labels(view)
    plan = identity_plan(view.info.batch, view.grid) if blind else public_plan(view)
    generator = torch.Generator().manual_seed(view.effort.seed)
    clean = [*_closed_form(view, labels, blind), view.prior.mean.clamp(0, 1).expand(view.info.batch, -1, -1, -1)]
    starts = [*clean, *(_noisy(view, generator) for _ in range(view.effort.restarts))]
    with Progress(len(starts) * view.effort.steps, f"{NAME}{' (blind)' if blind else ''}") as progress:
        ends = [_descend(view, start, labels, plan, progress.advance) for start in starts]
    candidates = [*clean, *(_smoothed(view, pictures) for _, pictures in ends)]
    best = max(candidates, key=lambda pictures: match(view, pictures, labels, plan))
    details = {"objective": min(loss for loss, _ in ends), "starts": len(starts), "labels": labels.tolist()}
    return Reconstruction(best.double(), details)


def _closed_form(view: View, labels: Tensor, blind: bool) -> list[Tensor]:
    """The (1, 3, H, W) result that explains the update best, of the closed forms that can run; none for the blind."""
    results = []
    for attack in () if blind or view.info.batch > 1 else CLOSED_FORMS:
        try:
            results.append(attack.run(view).pictures.clamp(0, 1))
        except Refused:
            continue
    return sorted(results, key=lambda pictures: match(view, pictures, labels))[-1:]


def _smoothed(view: View, pictures: Tensor) -> Tensor:
    return torch.stack([view.prior.smoothed(picture).clamp(0, 1) for picture in pictures.double()])


def _noisy(view: View, generator: torch.Generator) -> Tensor:
    shape = (view.info.batch, *view.prior.mean.shape)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (view.prior.mean + 0.1 * noise).clamp(0, 1)


def _descend(view: View, start: Tensor, labels: Tensor, plan: Plan, tick: Callable[[], object]) -> tuple[float, Tensor]:
    """Adam on the pixels, clamped to [0, 1]; the lowest objective and its pictures."""
    effort = view.effort
    like = next(view.model.parameters())
    pixels = start.to(like).clone().requires_grad_()
    optimizer = torch.optim.Adam([pixels], lr=effort.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, effort.steps)
    lowest = float("inf")
    best = start.to(like)
    idle = 0
    for _ in range(effort.steps):
        tick()
        loss, penalty = _objective(view, pixels, labels, plan)
        if loss.item() < lowest * (1 - 1e-4):
            lowest = loss.item()
            best = pixels.detach().clone()
            idle = 0
        else:
            idle += 1
        if idle > MAX_IDLE_STEPS:
            break
        (pixels.grad,) = torch.autograd.grad(loss + penalty, pixels)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            pixels.clamp_(0, 1)
    return lowest, best


def _objective(view: View, pixels: Tensor, labels: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """How far the gradients are apart, and how little the pixels look like a picture."""
    with sdpa_kernel(SDPBackend.MATH):  # the fused attention has no second derivative
        simulated = simulate(view, normalised(view, pixels), labels, plan, keep_graph=True)
    gradient = torch.cat([part.flatten() for part in simulated.values()])
    target = torch.cat([view.gradients[name].flatten() for name in simulated]).to(gradient)
    if view.effort.objective == "cosine":
        loss = 1 - cosine_similarity(gradient, target, 0)
    else:
        loss = (gradient - target).square().sum() / target.square().sum()
    return loss, view.effort.tv * total_variation(pixels) + view.effort.edges * patch_edges(pixels, view.patch)


def total_variation(pictures: Tensor) -> Tensor:
    """Mean absolute step between neighbouring pixels."""
    return pictures.diff(dim=-1).abs().mean() + pictures.diff(dim=-2).abs().mean()


def patch_edges(pictures: Tensor, patch: tuple[int, int]) -> Tensor:
    """Mean squared step across the borders of patches."""
    height, width = patch
    down = pictures[..., height::height, :] - pictures[..., height - 1 : -1 : height, :]
    across = pictures[..., width::width] - pictures[..., width - 1 : -1 : width]
    return down.square().mean() + across.square().mean()
