"""DP-SGD through Opacus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mjp.privacy.defence import CLIP_NORM, Defence, Number

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from mjp.method.model import MJP
    from mjp.method.plan import Plan


def private_gradients(
    network: MJP, images: Tensor, labels: Tensor, plan: Plan, multiplier: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """One step of DP-SGD by Opacus's optimizer: clipped per picture, summed, noised, averaged."""
    import copy

    import torch
    from opacus.optimizers import DPOptimizer

    from mjp.method.per_sample import per_sample_gradients

    private = copy.deepcopy(network)
    named = {name: p for name, p in private.named_parameters() if p.requires_grad}
    optimizer = DPOptimizer(
        torch.optim.SGD(named.values(), lr=1.0),
        noise_multiplier=multiplier,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=len(images),
        generator=generator,
    )
    for name, gradient in per_sample_gradients(private, images, labels, plan).items():
        named[name].grad_sample = gradient  # type: ignore[attr-defined]
    optimizer.pre_step()
    return {name: p.grad.detach() for name, p in named.items() if p.grad is not None}


DEFENCE = Defence(
    name="dp",
    help="DP-SGD by Opacus: every picture's gradient is clipped to norm 1, noise σ on each coordinate",
    number=Number("σ", 0, 1e6),
    package="opacus",
    order=35,
    gradients=private_gradients,
    multiplier=float,
)
