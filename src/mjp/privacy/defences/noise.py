"""Gaussian noise on the whole update, after clipping it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mjp.privacy.defence import CLIP_NORM, Defence, Number

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def add_noise(tensors: dict[str, Tensor], relative: float, generator: torch.Generator) -> dict[str, Tensor]:
    """Clip all tensors together to norm 1, then add Gaussian noise of expected norm `relative`; 0 clips alone."""
    import torch

    norm = torch.stack([tensor.double().norm() for tensor in tensors.values()]).norm()
    scale = (CLIP_NORM / norm.clamp(min=1e-300)).clamp(max=1)
    deviation = relative * CLIP_NORM / sum(tensor.numel() for tensor in tensors.values()) ** 0.5
    noisy = {}
    for name, tensor in tensors.items():
        noise = torch.empty_like(tensor).normal_(generator=generator)
        noisy[name] = tensor * scale.to(tensor) + deviation * noise
    return noisy


DEFENCE = Defence(
    name="noise",
    help="the gradient is clipped to norm 1, then Gaussian noise of norm r is added",
    number=Number("r", 0, 1e6),
    order=30,
    perturb=add_noise,
)
