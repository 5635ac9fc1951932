"""Image encoders of language models as classifiers (DeepSeek, Qwen3): rotations, and in Qwen3 a table beside them.

A projector that joins neighbouring patches for the language model sees their order; such variants are refused.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from timm.models import checkpoint
from timm.models.deepseek_vit import DeepseekVitClassifier
from timm.models.qwen3_vit import Qwen3VitClassifier, resample_pos_embed_grid
from torch import Tensor, nn

from mjp.method.adapter import JIGSAW_ONLY, Obstacle, TokenParts, map_tokens
from mjp.method.backbones.rotary import Rotary, hide_rotations
from mjp.method.backbones.vit import patch_obstacles, patch_tokens, position_obstacles, tableless_obstacles
from mjp.method.config import MJPConfig
from mjp.method.plan import Plan
from mjp.method.positions import Positions


@dataclass(frozen=True)
class Language(Rotary):
    """timm's classifiers around such an encoder, for pictures of any size."""

    handles: ClassVar[tuple[type[nn.Module], ...]] = (DeepseekVitClassifier, Qwen3VitClassifier)

    @classmethod
    def obstacles(cls, model: Any, config: MJPConfig) -> list[Obstacle]:
        obstacles = []
        if model.encoder_pool:
            reason = "its projector joins neighbouring patches and so sees their order, which cannot be hidden"
            obstacles.append(Obstacle(f"{reason}: {JIGSAW_ONLY}"))
        obstacles += patch_obstacles(model.encoder, config)
        obstacles += position_obstacles(model, config, hides=(r"encoder\.pos_embed", r"encoder\.rope"))
        obstacles += tableless_obstacles(model.encoder, config, "rotations")
        if _table(model) is not None and config.position == "index":
            obstacles.append(Obstacle("its table is resampled to any grid and takes no index embedding"))
        return obstacles

    @classmethod
    def build(cls, model: Any, config: MJPConfig) -> "Language":
        height, width = model.encoder.patch_embed.patch_size
        return cls((height, width))

    @classmethod
    def rotation_angles(cls, model: Any) -> int:
        return super().rotation_angles(model.encoder)

    def grid(self, model: Any, images: Tensor) -> tuple[int, int]:
        return super().grid(model.encoder, images)

    def stored_table(self, model: Any) -> Tensor | None:
        return _table(model)

    def token_grid(self, model: Any) -> tuple[int, int] | None:
        rows, columns = model.encoder.patch_embed.grid_size
        return None if _table(model) is None else (rows, columns)

    def position_table(self, model: Any, grid: tuple[int, int] | None, extra: Tensor | None) -> Tensor | None:
        table = _table(model)
        if table is None:
            return None
        grid = grid or model.encoder.patch_embed.grid_size
        resampled: Tensor = resample_pos_embed_grid(table, model.encoder.pos_embed_grid_size, grid)
        return resampled

    def forward_features(self, model: Any, images: Tensor, plan: Plan, positions: Positions) -> Tensor:
        encoder = model.encoder
        tokens = patch_tokens(encoder, images, plan, self.cell)
        table = positions.absolute()
        tokens = tokens if table is None else tokens + table.to(tokens.dtype)
        rotation = hide_rotations(encoder, encoder.rope.get_embed(shape=plan.grid), positions)
        for block in encoder.blocks:
            if encoder.grad_checkpointing:
                tokens = checkpoint(block, tokens, rope=rotation)
            else:
                tokens = block(tokens, rope=rotation)
        if isinstance(model, DeepseekVitClassifier):
            tokens = encoder.norm(tokens)
        return tokens.unflatten(1, plan.grid)

    @classmethod
    def split_tokens(cls, model: Any, features: Tensor) -> TokenParts:
        return map_tokens(features.permute(0, 3, 1, 2))


def _table(model: Any) -> Tensor | None:
    table: Tensor | None = getattr(model.encoder, "pos_embed", None)
    return table


ADAPTER = Language
EXAMPLE = (
    "qwen3_vit_88m",
    {
        "img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 48, "num_heads": 3, "pos_embed_grid_size": 4,
        "num_classes": 10,
    },
)  # fmt: skip
