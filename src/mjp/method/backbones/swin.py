"""Swin: pixels are shuffled; with `ape` an absolute position embedding is added behind the patch embedding.

The relative position bias is part of every attention layer and is never hidden.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from timm.models import SwinTransformer, SwinTransformerV2
from torch import Tensor, nn

from mjp.method.adapter import (
    DEFAULT_CELL,
    JIGSAW_ALONE,
    JIGSAW_ONLY,
    Adapter,
    Obstacle,
    Remedy,
    TokenParts,
    channels_first,
    map_tokens,
    resample_table,
)
from mjp.method.config import MJPConfig
from mjp.method.plan import Plan
from mjp.method.positions import Positions
from mjp.method.shuffle import shuffle_image

RELATIVE_ONLY = "its positions are relative biases in every attention layer, which cannot be hidden or localised"
WITH_TABLE = f"ape=True gives it absolute positions, which can; {JIGSAW_ONLY}"


@dataclass(frozen=True)
class Swin(Adapter):
    """timm's Swin, V1 and V2."""

    handles: ClassVar[tuple[type[nn.Module], ...]] = (SwinTransformer, SwinTransformerV2)
    exchangeable: ClassVar[bool] = False

    @classmethod
    def obstacles(cls, model: Any, config: MJPConfig) -> list[Obstacle]:
        obstacles = []
        cell = config.cell or DEFAULT_CELL
        patch = tuple(model.patch_embed.patch_size)
        if cell % patch[0] or cell % patch[1]:
            reason = f"a jigsaw piece of {cell} pixels is not a multiple of its patch {patch}: set `cell`"
            obstacles.append(Obstacle(reason))
        if config.needs_positions and not config.ape:
            obstacles.append(Obstacle(RELATIVE_ONLY, Remedy(JIGSAW_ALONE.changes, WITH_TABLE, JIGSAW_ALONE.remains)))
        if config.position == "none":
            obstacles.append(Obstacle(f"{RELATIVE_ONLY}, and position='none' cannot erase them: {JIGSAW_ONLY}"))
        return obstacles

    @classmethod
    def build(cls, model: Any, config: MJPConfig) -> "Swin":
        cell = config.cell or DEFAULT_CELL
        height, width = model.patch_embed.patch_size
        return cls((cell, cell), (cell // height, cell // width))

    def new_table(self, model: Any) -> Tensor:
        weight: Tensor = model.patch_embed.proj.weight
        return weight.new_zeros(1, model.patch_embed.num_patches, weight.shape[0])

    def token_grid(self, model: Any) -> tuple[int, int] | None:
        rows, columns = model.patch_embed.grid_size
        return rows, columns

    def position_table(self, model: Any, grid: tuple[int, int] | None, extra: Tensor | None) -> Tensor | None:
        if extra is None:  # the model's own positions are all relative
            return None
        rows, columns = self.tokens_per_cell
        token_grid = None if grid is None else (grid[0] * rows, grid[1] * columns)
        return resample_table(extra, token_grid, model.patch_embed.grid_size)

    def forward_features(self, model: Any, images: Tensor, plan: Plan, positions: Positions) -> Tensor:
        tokens = model.patch_embed(shuffle_image(images, plan, self.cell))  # (B, h, w, D)
        table = positions.absolute()
        if table is not None:
            tokens = tokens + table.view(-1, *tokens.shape[1:])
        normed: Tensor = model.norm(model.layers(tokens))
        return normed

    def forward_head(self, model: Any, features: Tensor) -> tuple[Any, Tensor]:
        pooled = model.forward_head(features, pre_logits=True)
        return model.head.fc(pooled), pooled

    @classmethod
    def split_tokens(cls, model: Any, features: Tensor) -> TokenParts:
        return map_tokens(channels_first(model, features))


ADAPTER = Swin
EXAMPLE = (
    "swin_tiny_patch4_window7_224",
    {"img_size": 32, "window_size": 2, "embed_dim": 24, "depths": (1, 1), "num_heads": (2, 4), "num_classes": 10},
)
