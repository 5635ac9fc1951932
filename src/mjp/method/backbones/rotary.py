"""Rotary positions (timm's Eva: EVA-02, vit_*_rope_*, DINOv3): masked patches share one rotation in every block.

Where the model also has an absolute table (EVA-02), E_unk hides it as in a ViT, at the same time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from timm.layers import apply_keep_indices_nlc
from timm.models import Eva, checkpoint
from torch import Tensor, nn

from mjp.method.adapter import Obstacle
from mjp.method.backbones.vit import (
    ViT,
    code_obstacles,
    embedded_tokens,
    patch_obstacles,
    position_obstacles,
    tableless_obstacles,
)
from mjp.method.config import MJPConfig
from mjp.method.plan import Plan
from mjp.method.positions import Positions


@dataclass(frozen=True)
class Rotary(ViT):
    """timm's Eva: rotations that are fixed, computed for any size, or learned for every block; with a table or not."""

    handles: ClassVar[tuple[type[nn.Module], ...]] = (Eva,)

    @classmethod
    def obstacles(cls, model: Any, config: MJPConfig) -> list[Obstacle]:
        obstacles = [*code_obstacles(model, Eva), *patch_obstacles(model, config)]
        obstacles += position_obstacles(model, config, hides=("pos_embed", "rope"))
        if model.rope is not None:
            obstacles += tableless_obstacles(model, config, "rotations")
        return obstacles

    @classmethod
    def rotation_angles(cls, model: Any) -> int:
        return 0 if model.rope is None else int(model.blocks[0].attn.head_dim) // 2

    def forward_features(self, model: Any, images: Tensor, plan: Plan, positions: Positions) -> Tensor:
        tokens = model.pos_drop(embedded_tokens(model, images, plan, positions.absolute(), self.cell))
        remaining = None  # indices of the patches that patch dropout leaves, (B, n)
        if model.patch_drop is not None:
            tokens, remaining = model.patch_drop(tokens)
        tokens = model.norm_pre(tokens)
        rotations = block_rotations(model, plan.grid, positions, remaining, len(tokens))
        for block, rotation in zip(model.blocks, rotations, strict=True):
            if model.grad_checkpointing:
                tokens = checkpoint(block, tokens, rope=rotation)
            else:
                tokens = block(tokens, rope=rotation)
        normed: Tensor = model.norm(tokens)
        return normed


def block_rotations(
    model: Any, grid: tuple[int, int], positions: Positions, remaining: Tensor | None, batch: int
) -> Iterator[Tensor | None]:
    """What each block turns its patches by: sines, then cosines, (N, 2d) or, per image and head, (B, H, N, 2d)."""
    depth = len(model.blocks)
    if model.rope is None:
        yield from [None] * depth
        return
    has_one_size = isinstance(model, Eva) and not model.dynamic_img_size
    table = model.rope.get_embed() if has_one_size else model.rope.get_embed(shape=grid)
    if (
        table.ndim == 4
    ):  # learned for every block, (depth, H, N, 2d): one block at a time, since all of them per image would not fit
        yield from (_without_dropped(hide_rotations(model, part, positions), remaining, batch) for part in table)
    else:
        yield from [_without_dropped(hide_rotations(model, table, positions), remaining, batch)] * depth


def hide_rotations(model: Any, table: Tensor, positions: Positions) -> Tensor:
    """A table, (N, 2d) or (H, N, 2d), with one rotation for all masked slots: (B or 1, 1 or H, N, 2d)."""
    if positions.mask is None:
        return table
    angles = table.new_zeros(table.shape[-1] // 4) if positions.rotation is None else positions.rotation
    angles = angles.tile(2) if model.blocks[0].attn.rotate_half else angles.repeat_interleave(2)
    unknown = torch.cat([angles.sin(), angles.cos()]).to(table.dtype)  # (2d,); the identity for angles of zero
    return torch.where(positions.mask[:, None, :, None], unknown, table)


def _without_dropped(table: Tensor, remaining: Tensor | None, batch: int) -> Tensor:
    """The rotations of the patches that patch dropout leaves."""
    if remaining is None:
        return table
    table = table.unsqueeze(0) if table.ndim == 2 else table
    table = table.expand(batch, *table.shape[-3:])
    return apply_keep_indices_nlc(table, table, remaining, pos_embed_has_batch=True)


ADAPTER = Rotary
EXAMPLE = (
    "eva02_tiny_patch14_224",
    {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 48, "num_heads": 3, "num_classes": 10},
)
