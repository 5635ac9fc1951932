"""What the defences that shuffle share: how the model is wrapped, and how a client draws its jigsaw."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mjp.method.config import MJPConfig, variant

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from mjp.method.plan import Plan


def masked_config(config: MJPConfig, ratio: float, *, shared: bool = False) -> MJPConfig:
    """A model with E_unk; one that was trained with MJP keeps its own settings."""
    base = config if config.position == "unknown" else variant("J")
    return replace(base, shuffle="jigsaw", ratio=ratio, shared=shared)


def draw_jigsaw(
    images: Tensor, grid: tuple[int, int], ratio: float, generator: torch.Generator, *, shared: bool = False
) -> Plan:
    """A jigsaw for every picture, or one for all of them (`shared`)."""
    from mjp.method.plan import sample_plan

    return sample_plan(len(images), grid, ratio, generator=generator, device=images.device, shared=shared)
