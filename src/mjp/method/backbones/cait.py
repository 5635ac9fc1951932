"""CaiT: a ViT whose table has no row for the class token, which joins behind the blocks of the patches."""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from timm.models import Cait, checkpoint_seq
from torch import Tensor, nn

from mjp.method.adapter import Obstacle, TokenParts, token_parts
from mjp.method.backbones.vit import ViT, code_obstacles, patch_obstacles, patch_tokens, position_obstacles
from mjp.method.config import MJPConfig
from mjp.method.plan import Plan
from mjp.method.positions import Positions


@dataclass(frozen=True)
class CaiT(ViT):
    """timm's CaiT; its talking heads mix heads, not patches."""

    handles: ClassVar[tuple[type[nn.Module], ...]] = (Cait,)

    @classmethod
    def obstacles(cls, model: Any, config: MJPConfig) -> list[Obstacle]:
        return [
            *code_obstacles(model, Cait),
            *patch_obstacles(model, config),
            *position_obstacles(model, config, hides=("pos_embed",)),
        ]

    def forward_features(self, model: Any, images: Tensor, plan: Plan, positions: Positions) -> Tensor:
        table = cast(Tensor, positions.absolute())
        patches = model.pos_drop(patch_tokens(model, images, plan, self.cell) + table)
        patches = checkpoint_seq(model.blocks, patches) if model.grad_checkpointing else model.blocks(patches)
        summary = model.cls_token.expand(len(patches), -1, -1)
        for block in model.blocks_token_only:
            summary = block(patches, summary)
        normed: Tensor = model.norm(torch.cat([summary, patches], 1))
        return normed

    @classmethod
    def split_tokens(cls, model: Any, features: Tensor) -> TokenParts:
        return token_parts(features[:, 1:], features[:, :1], class_token=True)


ADAPTER = CaiT
EXAMPLE = (
    "cait_xxs24_224",
    {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 48, "num_heads": 3, "num_classes": 10},
)
