"""Gradient matching: change pictures until their gradient is the update's (DLG, Inverting Gradients, GradViT).

    minimise over x    1 − cos(∇L(x), update)   or   ‖∇L(x) − update‖² / ‖update‖²
                       + tv · total variation + edges · steps across patch borders

Any batch, any defence. The labels come from the classifier's gradient; the mask of a single MJP picture is public and
is used. It starts from the best that a closed form offers, from the mean picture, and from that with noise. A gradient
can be matched by what is no picture, so every end is smoothed until it is no rougher than public pictures are; of what
is left, and the starts, that which explains the update best is the answer. Where the network does not tell places apart
(no positions, or E_unk) neither can this: read its score in any order. Second derivatives of a ViT take long on a CPU:
for small models only.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cosine_similarity
from tqdm import tqdm

from mjp.method.plan import Plan, identity_plan
from mjp.privacy.attacks import direct, span, subspace
from mjp.privacy.server.self_check import match, normalised, public_plan, recover_labels, simulate
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME, TITLE = "matching", "gradient matching (knows the mask)"
LARGEST, MOST = 8_000_000, 8  # parameters and pictures that a CPU gets through
PATIENCE = 100  # steps without progress before a start is given up
CLOSED = (direct, subspace, span)


def run(view: View, *, blind: bool = False) -> Reconstruction:
    size = sum(p.numel() for p in view.model.parameters())
    if size > LARGEST and next(view.model.parameters()).device.type == "cpu":
        raise Refused(f"{size / 1e6:.0f} million parameters: matching takes hours on a CPU, use a GPU or a closed form")
    if view.facts.batch > MOST:
        raise Refused(f"the update is of {view.facts.batch} pictures, matching was made for {MOST} at most")
    labels = recover_labels(view)
    plan = identity_plan(view.facts.batch, view.grid) if blind else public_plan(view)
    generator = torch.Generator().manual_seed(view.effort.seed)
    known = [*_closed(view, labels, blind), view.prior.mean.clamp(0, 1).expand(view.facts.batch, -1, -1, -1)]
    starts = [*known, *(_noisy(view, generator) for _ in range(view.effort.restarts))]
    total = len(starts) * view.effort.steps
    with tqdm(total=total, desc=f"{NAME}{' (blind)' if blind else ''}", unit="step", disable=None, leave=False) as bar:
        ends = [_descend(view, start, labels, plan, bar.update) for start in starts]
    offers = [*known, *(_smoothed(view, pictures) for _, pictures in ends)]
    best = max(offers, key=lambda pictures: match(view, pictures, labels, plan))
    facts = {"objective": min(loss for loss, _ in ends), "starts": len(starts), "labels": labels.tolist()}
    return Reconstruction(best.double(), facts)


def _closed(view: View, labels: Tensor, blind: bool) -> list[Tensor]:
    """The closed form that explains the update best, if the attacker knows any that can run: (1, 3, H, W) in [0, 1]."""
    offers = []
    for attack in () if blind or view.facts.batch > 1 else CLOSED:
        try:
            offers.append(attack.run(view).pictures.clamp(0, 1))
        except Refused:
            continue
    return sorted(offers, key=lambda pictures: match(view, pictures, labels))[-1:]


def _smoothed(view: View, pictures: Tensor) -> Tensor:
    return torch.stack([view.prior.smoothed(picture).clamp(0, 1) for picture in pictures.double()])


def _noisy(view: View, generator: torch.Generator) -> Tensor:
    shape = (view.facts.batch, *view.prior.mean.shape)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (view.prior.mean + 0.1 * noise).clamp(0, 1)


def _descend(view: View, start: Tensor, labels: Tensor, plan: Plan, tick: Callable[[], object]) -> tuple[float, Tensor]:
    """Adam on the pixels, kept in [0, 1]; the best objective seen and its pictures."""
    effort, like = view.effort, next(view.model.parameters())
    pixels = start.to(like).clone().requires_grad_()
    optimizer = torch.optim.Adam([pixels], lr=effort.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, effort.steps)
    best, kept, idle = float("inf"), start.to(like), 0
    for _ in range(effort.steps):
        tick()
        loss, penalty = _objective(view, pixels, labels, plan)
        if loss.item() < best * (1 - 1e-4):
            best, kept, idle = loss.item(), pixels.detach().clone(), 0
        else:
            idle += 1
        if idle > PATIENCE:
            break
        (pixels.grad,) = torch.autograd.grad(loss + penalty, pixels)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            pixels.clamp_(0, 1)
    return best, kept


def _objective(view: View, pixels: Tensor, labels: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """How far the gradients are apart, and how little the pixels look like a picture."""
    with sdpa_kernel(SDPBackend.MATH):  # the fused attention has no second derivative
        found = simulate(view, normalised(view, pixels), labels, plan, keep=True)
    mine = torch.cat([gradient.flatten() for gradient in found.values()])
    theirs = torch.cat([view.gradients[name].flatten() for name in found]).to(mine)
    if view.effort.objective == "cosine":
        loss = 1 - cosine_similarity(mine, theirs, 0)
    else:
        loss = (mine - theirs).square().sum() / theirs.square().sum()
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
