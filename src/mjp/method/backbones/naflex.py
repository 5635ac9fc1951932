"""NaFlexViT: a ViT for pictures of any size, with a table over a grid, tables for rows and columns, or rotations."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from timm.models import NaFlexVit, checkpoint
from timm.models.naflexvit import NaFlexEmbeds
from torch import Tensor, nn

from mjp.method.adapter import NO_LOCALIZATION, Obstacle, TokenParts, View, token_parts
from mjp.method.backbones.rotary import block_rotations
from mjp.method.backbones.vit import ViT, code_obstacles, position_obstacles
from mjp.method.config import MJPConfig
from mjp.method.plan import Plan, identity_plan
from mjp.method.positions import Positions
from mjp.method.shuffle import shuffle_image, shuffle_tokens
from mjp.pictures.patches import image_grid


@dataclass(frozen=True)
class NaFlex(ViT):
    """timm's NaFlexVit on batches of pictures of one size."""

    handles: ClassVar[tuple[type[nn.Module], ...]] = (NaFlexVit,)

    @classmethod
    def obstacles(cls, model: Any, config: MJPConfig) -> list[Obstacle]:
        embeds = model.embeds
        obstacles = code_obstacles(model, NaFlexVit)
        if config.cell is not None and (config.cell, config.cell) != tuple(embeds.patch_size):
            obstacles.append(Obstacle(f"a ViT's jigsaw piece is its patch, {embeds.patch_size}: leave `cell` unset"))
        if embeds.dynamic_img_pad:
            obstacles.append(Obstacle("it pads pictures by itself: create it with dynamic_img_pad=False"))
        obstacles += position_obstacles(model, config, hides=(r"embeds\.pos_embed(_[xy])?", "rope"))
        if config.position in ("index", "none"):
            reason = f"its table is resampled to any grid and cannot be changed by position={config.position!r}"
            obstacles.append(Obstacle(f"{reason}: position='unknown' hides it"))
        if model.rope is not None and embeds.pos_embed_type == "none" and config.localize != "none":
            obstacles.append(Obstacle("its positions are rotations, with no table to localise", NO_LOCALIZATION))
        return obstacles

    @classmethod
    def build(cls, model: Any, config: MJPConfig) -> "NaFlex":
        height, width = model.embeds.patch_size
        return cls((height, width))

    @classmethod
    def rotation_angles(cls, model: Any) -> int:
        return 0 if model.rope is None else int(model.blocks[0].attn.head_dim) // 2

    def grid(self, model: Any, images: Tensor) -> tuple[int, int]:
        return image_grid(images, self.cell)

    def stored_table(self, model: Any) -> Tensor | None:
        table: Tensor | None = model.embeds.pos_embed
        return table

    def token_grid(self, model: Any) -> tuple[int, int] | None:
        if model.embeds.pos_embed_type == "none":
            return None
        rows, columns = model.embeds.pos_embed_grid_size
        return rows, columns

    def position_table(self, model: Any, grid: tuple[int, int] | None, extra: Tensor | None) -> Tensor | None:
        embeds = model.embeds
        if embeds.pos_embed_type == "none":
            return None
        rows, columns = grid or embeds.pos_embed_grid_size
        table: Tensor = embeds.proj.weight.new_zeros(1, rows * columns, embeds.embed_dim)
        learned = embeds.pos_embed_type == "learned"
        # timm adds its table in place, at any grid: added to zeros it is the table
        (embeds._apply_learned_pos_embed if learned else embeds._apply_factorized_pos_embed)(table, [rows, columns])
        return table

    def forward_features(self, model: Any, images: Tensor, plan: Plan, positions: Positions) -> Tensor:
        tokens = _embedded(model.embeds, images, plan, positions.absolute(), self.cell)
        remaining = None  # indices of the patches that patch dropout leaves, (B, n)
        if model.training and model.patch_drop is not None:
            tokens, remaining = model.patch_drop(tokens)
        tokens = model.norm_pre(tokens)
        rotations = block_rotations(model, plan.grid, positions, remaining, len(tokens))
        for block, rotation in zip(model.blocks, rotations, strict=True):
            # only blocks of a rotary model take rotations
            turns: dict[str, Any] = {} if rotation is None else {"rope": rotation}
            tokens = checkpoint(block, tokens, **turns) if model.grad_checkpointing else block(tokens, **turns)
        normed: Tensor = model.norm(tokens)
        return normed

    @classmethod
    def split_tokens(cls, model: Any, features: Tensor) -> TokenParts:
        prefix = model.num_prefix_tokens
        return token_parts(features[:, prefix:], features[:, :prefix], class_token=model.embeds.has_class_token)


def _embedded(embeds: Any, images: Tensor, plan: Plan, positions: Tensor | None, cell: tuple[int, int]) -> Tensor:
    """Patches embedded by timm's own code, shuffled, with their positions and behind the prefix tokens."""
    if plan.pixels is not None:  # SPP reaches into the patches, so it has to happen before they are embedded
        images = shuffle_image(images, plan, cell)
        plan = identity_plan(len(images), plan.grid, device=images.device)
    bare = View(embeds, pos_embed_type="none", cls_token=None, reg_token=None, pos_drop=nn.Identity())
    tokens, _ = NaFlexEmbeds.forward(bare, images)  # type: ignore[arg-type]
    tokens = shuffle_tokens(tokens, plan, prefix=0)
    if positions is not None:
        tokens = tokens + positions.to(tokens.dtype)  # as timm, which adds its table in place
    prefix = [token.expand(len(tokens), -1, -1) for token in (embeds.cls_token, embeds.reg_token) if token is not None]
    dropped: Tensor = embeds.pos_drop(torch.cat([*prefix, tokens], 1))
    return dropped


ADAPTER = NaFlex
EXAMPLE = (
    "naflexvit_base_patch16_gap",
    {"patch_size": 8, "pos_embed_grid_size": (4, 4), "depth": 2, "embed_dim": 48, "num_heads": 3, "num_classes": 10},
)
