"""Prepared pictures into codes, under a jigsaw or not.

With a mask ratio γ a picture is encoded under a jigsaw that hides the positions of ⌊γN⌋ patches (E_unk); their tokens
are stored in an order that depends on their values alone. Which patches are hidden follows from the picture's content:
indexed again, it gets the same entry. This hides the layout of the picture, not its content: every patch is still
described.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.common.errors import InputError
from mjp.common.validate import fraction
from mjp.method.model import MJP
from mjp.method.plan import Plan, sample_plan


class PictureEncoder:
    """Pictures into codes; refuses a mask ratio if the backbone cannot hide positions."""

    def __init__(self, model: Aladin, mask_ratio: float) -> None:
        self.model = model
        self.ratio = fraction("--mask-ratio", mask_ratio)
        backbone = model.vision.model
        hides = isinstance(backbone, MJP) and backbone.hides_positions and backbone.adapter.exchangeable
        if self.ratio and not hides:
            raise InputError(
                f"--mask-ratio needs a backbone that can hide positions, a ViT with E_unk; {model.vision.name} cannot: "
                "omit the option, or train on an MJP model"
            )

    def __call__(self, images: Tensor, ids: Sequence[str]) -> Codes:
        return self.model.encode_pictures(images, self.plan(images, ids) if self.ratio else None)

    def plan(self, images: Tensor, ids: Sequence[str]) -> Plan:
        """A jigsaw for every picture, drawn from its content's hash."""
        backbone: Any = self.model.vision.model
        return draw_plan(backbone, images, [int(name[:15], 16) for name in ids], self.ratio)

    def grid(self) -> tuple[int, int]:
        """Rows and columns of the patches."""
        height, width = self.model.vision.size
        count = self.model.vision.tokens(torch.zeros(1, 3, height, width)).patches.shape[1]
        rows = max(round((count * height / width) ** 0.5), 1)
        return rows, count // rows


def draw_plan(backbone: MJP, images: Tensor, seeds: Sequence[int], ratio: float) -> Plan:
    """A jigsaw for every picture, each from its own seed, with the sampler that the backbone was trained with."""
    config, grid = backbone.config, backbone.grid(images)
    sampler: dict[str, Any] = {"sampler": config.sampler, "min_block": config.min_block, "aspect": config.aspect}
    plans = [sample_plan(1, grid, ratio, generator=torch.Generator().manual_seed(s), **sampler) for s in seeds]
    mask, permutation, inverse = (torch.cat([plan[i] for plan in plans]) for i in range(3))  # type: ignore[misc]
    return Plan(mask, permutation, inverse, grid, plans[0].budget).to(next(backbone.parameters()).device)
