"""ViT and its distilled sister: tokens are shuffled between patch embedding and position embedding."""

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from timm.layers import PatchEmbed
from timm.models import VisionTransformer, checkpoint_seq
from timm.models.deit import VisionTransformerDistilled
from torch import Tensor, nn
from torch.nn.functional import pad

from mjp.common.errors import InputError
from mjp.method.adapter import (
    JIGSAW_ALONE,
    JIGSAW_ONLY,
    NO_LOCALIZATION,
    NO_POSITIONS,
    Adapter,
    Obstacle,
    TokenParts,
    resample_table,
    token_parts,
)
from mjp.method.config import MJPConfig
from mjp.method.plan import Plan, identity_plan
from mjp.method.position_parts import described, position_parts
from mjp.method.positions import Positions
from mjp.method.shuffle import shuffle_image, shuffle_tokens
from mjp.pictures.patches import image_grid


@dataclass(frozen=True)
class ViT(Adapter):
    """timm's VisionTransformer: any prefix tokens, any grid, fixed or dynamic size."""

    handles: ClassVar[tuple[type[nn.Module], ...]] = (VisionTransformer,)
    exchangeable: ClassVar[bool] = True

    @classmethod
    def obstacles(cls, model: Any, config: MJPConfig) -> list[Obstacle]:
        return [
            *code_obstacles(model, VisionTransformer, VisionTransformerDistilled),
            *patch_obstacles(model, config),
            *position_obstacles(model, config, hides=("pos_embed",)),
        ]

    @classmethod
    def build(cls, model: Any, config: MJPConfig) -> "ViT":
        height, width = model.patch_embed.patch_size
        return cls((height, width))

    def grid(self, model: Any, images: Tensor) -> tuple[int, int]:
        grid = image_grid(_padded(model, images), self.cell)
        model_grid = tuple(model.patch_embed.grid_size)
        if grid != model_grid and not getattr(model, "dynamic_img_size", not model.patch_embed.strict_img_size):
            flexible = ", call model.set_input_size(img_size), or create it with dynamic_img_size=True"
            raise InputError(
                f"images of {tuple(images.shape[-2:])} give a grid of {grid}, the model was built for {model_grid}: "
                f"resize the images{flexible if hasattr(model, 'set_input_size') else ', or create it with their size'}"
            )
        return grid

    def stored_table(self, model: Any) -> Tensor | None:
        return _table(model)

    def token_grid(self, model: Any) -> tuple[int, int] | None:
        rows, columns = model.patch_embed.grid_size
        return None if _table(model) is None else (rows, columns)

    def position_table(self, model: Any, grid: tuple[int, int] | None, extra: Tensor | None) -> Tensor | None:
        table = _table(model)
        if table is None:
            return None
        patches = table[:, _prefix_rows(model, table) :]
        return resample_table(patches if extra is None else patches + extra, grid, model.patch_embed.grid_size)

    def forward_features(self, model: Any, images: Tensor, plan: Plan, positions: Positions) -> Tensor:
        tokens = embedded_tokens(model, images, plan, positions.absolute(), self.cell)
        if model.pos_embed is not None:
            tokens = model.pos_drop(tokens)
        tokens = model.norm_pre(model.patch_drop(tokens))
        tokens = checkpoint_seq(model.blocks, tokens) if model.grad_checkpointing else model.blocks(tokens)
        normed: Tensor = model.norm(tokens)
        return normed

    def forward_head(self, model: Any, features: Tensor) -> tuple[Any, Tensor]:
        pooled = model.forward_head(features, pre_logits=True)
        if isinstance(model, VisionTransformerDistilled):  # two heads, each on a token of its own
            return model.forward_head(features), pooled
        return model.head(pooled), pooled

    @classmethod
    def split_tokens(cls, model: Any, features: Tensor) -> TokenParts:
        prefix = model.num_prefix_tokens
        return token_parts(features[:, prefix:], features[:, :prefix], class_token=model.cls_token is not None)


def code_obstacles(model: Any, *classes: type[nn.Module]) -> list[Obstacle]:
    """What is in the way when a subclass of timm's classes replaces the code that an adapter follows."""
    kind = type(model)
    for name in ("forward_features", "_pos_embed"):
        if all(getattr(kind, name, None) is not getattr(base, name, None) for base in classes):
            return [Obstacle(f"{kind.__name__} adds its positions in its own way and needs its own adapter")]
    return []


def patch_obstacles(model: Any, config: MJPConfig) -> list[Obstacle]:
    """What is in the way when patches are not the pieces of a jigsaw."""
    embed = model.patch_embed
    if not isinstance(embed, PatchEmbed) or embed.proj.kernel_size != embed.proj.stride:
        reason = "its patches overlap or pass a convolutional stem, so their places cannot be hidden"
        return [Obstacle(f"{reason}: {JIGSAW_ONLY}")]
    if config.cell is not None and (config.cell, config.cell) != tuple(embed.patch_size):
        return [Obstacle(f"a ViT's jigsaw piece is its patch, {embed.patch_size}: leave `cell` unset")]
    return []


def position_obstacles(model: Any, config: MJPConfig, *, hides: tuple[str, ...]) -> list[Obstacle]:
    """What is in the way when a model has positions beside those that its adapter hides, or none at all.

    `hides` are patterns for the names of the parts that hold positions.
    """
    parts = position_parts(model)
    others = {name: kind for name, kind in parts.items() if not any(re.fullmatch(hidden, name) for hidden in hides)}
    if not config.touches_positions:
        return []
    if others:
        return [Obstacle(f"it has {described(others)}, which cannot be hidden: {JIGSAW_ONLY}")]
    return [Obstacle(NO_POSITIONS, JIGSAW_ALONE)] if config.needs_positions and not parts else []


def tableless_obstacles(model: Any, config: MJPConfig, kind: str) -> list[Obstacle]:
    """What means nothing to positions of this kind, or to a model that has no others."""
    obstacles = []
    if config.position == "none":
        obstacles.append(Obstacle(f"position='none' erases a table, not {kind}: position='unknown' hides them"))
    if _table(model) is not None:
        return obstacles
    if config.position == "index":
        obstacles.append(Obstacle(f"its positions are {kind}, with no table to add an index embedding to"))
    if config.localize != "none":
        obstacles.append(Obstacle(f"its positions are {kind}, with no table to localise", NO_LOCALIZATION))
    return obstacles


def embedded_tokens(model: Any, images: Tensor, plan: Plan, positions: Tensor | None, cell: tuple[int, int]) -> Tensor:
    """Patches embedded, shuffled, with their positions and behind the prefix tokens, (B, K + N, D)."""
    return _with_prefix(model, patch_tokens(model, images, plan, cell), positions)


def patch_tokens(model: Any, images: Tensor, plan: Plan, cell: tuple[int, int]) -> Tensor:
    """Patches embedded and shuffled, (B, N, D)."""
    images = _padded(model, images)
    if plan.pixels is not None:  # SPP reaches into the patches, so it has to happen before they are embedded
        images = shuffle_image(images, plan, cell)
        plan = identity_plan(len(images), plan.grid, device=images.device)
    tokens = model.patch_embed(images)  # (B, N, D), or (B, h, w, D) when the size is dynamic
    return shuffle_tokens(tokens.flatten(1, -2), plan, prefix=0)


def _padded(model: Any, images: Tensor) -> Tensor:
    """Images with the margin that timm's patch embedding adds when it was created with `dynamic_img_pad`."""
    if not model.patch_embed.dynamic_img_pad or not isinstance(images, Tensor) or images.ndim != 4:
        return images
    height, width = model.patch_embed.patch_size
    return pad(images, (0, -images.shape[3] % width, 0, -images.shape[2] % height))


def _table(model: Any) -> Tensor | None:
    table: Tensor | None = getattr(model, "pos_embed", None)
    return table


def _prefix_rows(model: Any, table: Tensor) -> int:
    """How many rows of timm's position table, (1, K + N, D), belong to prefix tokens."""
    return int(table.shape[1] - math.prod(model.patch_embed.grid_size))


def _with_prefix(model: Any, tokens: Tensor, positions: Tensor | None) -> Tensor:
    """Class, distillation and register tokens in timm's order, with positions where timm adds them."""
    learned = [getattr(model, name, None) for name in ("cls_token", "dist_token", "reg_token")]
    prefix = [token for token in learned if token is not None]
    if positions is not None:
        tokens = tokens + positions
    if prefix:
        first = torch.cat(prefix, 1)  # (1, prefix, D)
        table = _table(model)
        rows = 0 if table is None else _prefix_rows(model, table)
        if positions is not None and table is not None and rows:
            first = first + table[:, :rows]
        tokens = torch.cat([first.expand(len(tokens), -1, -1), tokens], 1)
    return tokens


ADAPTER = ViT
EXAMPLE = (
    "deit_small_distilled_patch16_224",
    {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 48, "num_heads": 3, "num_classes": 10},
)
