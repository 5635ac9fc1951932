"""Any other image classifier of timm: MJP is the jigsaw on its input."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.method.adapter import (
    DEFAULT_CELL,
    JIGSAW_ALONE,
    JIGSAW_ONLY,
    NO_POSITIONS,
    Adapter,
    Obstacle,
    TokenParts,
    channels_first,
    map_tokens,
    token_parts,
)
from mjp.method.config import MJPConfig
from mjp.method.plan import Plan
from mjp.method.position_parts import described, has_overlapping_convolution, position_parts
from mjp.method.positions import Positions
from mjp.method.shuffle import shuffle_image

ENCODERS = ("DeepseekVitEncoder", "Gemma4VitEncoder", "Qwen3VitEncoder")
REASONS = {  # of models without overlapping convolutions, by class
    "ConVit": "its heads add attention by place alone to attention by content, which no adapter hides",
    "CrossVit": "it sees pictures on two grids, one of a resized picture, whose patches cannot move together",
    "Gemma4VitClassifier": "it makes both from coordinates inside its own layers, for which there is no adapter",
    "SwinTransformerV2Cr": "its windows see which patches are neighbours, so hiding them would not hide their order",
    "VisionTransformerSAM": "its attention multiplies them by the queries, for which there is no adapter",
}


@dataclass(frozen=True)
class Pixels(Adapter):
    """A model of which nothing is known but timm's interface."""

    handles: ClassVar[tuple[type[nn.Module], ...]] = (nn.Module,)
    exchangeable: ClassVar[bool] = False

    @classmethod
    def obstacles(cls, model: Any, config: MJPConfig) -> list[Obstacle]:
        obstacles = []
        if not (hasattr(model, "forward_features") and hasattr(model, "forward_head")):
            obstacles.append(Obstacle("it has no forward_features and forward_head: wrap a timm image classifier"))
        if type(model).__name__ in ENCODERS:
            obstacles.append(Obstacle("it gives tokens to a language model and no logits: use timm's classifier of it"))
        parts = position_parts(model) if config.touches_positions else {}
        if parts:
            obstacles.append(Obstacle(f"it has {described(parts)}, {_why_not_hidden(model)}; {JIGSAW_ONLY}"))
        elif config.needs_positions:
            obstacles.append(Obstacle(NO_POSITIONS, JIGSAW_ALONE))
        stride = _first_stride(model)
        if config.cell is not None and config.cell % stride:
            reason = f"a jigsaw piece of {config.cell} pixels is not a multiple of its first stride {stride}"
            obstacles.append(Obstacle(f"{reason}: change `cell`, or leave it unset"))
        return obstacles

    @classmethod
    def build(cls, model: Any, config: MJPConfig) -> "Pixels":
        stride = _first_stride(model)
        cell = config.cell or stride * math.ceil(DEFAULT_CELL / stride)
        return cls((cell, cell))

    def forward_features(self, model: Any, images: Tensor, plan: Plan, positions: Positions) -> Tensor:
        features: Tensor = model.forward_features(shuffle_image(images, plan, self.cell))
        return features

    def forward_head(self, model: Any, features: Tensor) -> tuple[Any, Tensor]:
        return model.forward_head(features), _pooled(model, features)

    @classmethod
    def split_tokens(cls, model: Any, features: Tensor) -> TokenParts:
        kind = type(model).__name__
        if isinstance(features, Tensor) and features.ndim == 4:
            return map_tokens(channels_first(model, features))
        if not isinstance(features, Tensor) or features.ndim != 3:
            raise InputError(f"the features of {kind} have no tokens: use a model that gives (B, N, D) or (B, D, h, w)")
        prefix = getattr(model, "num_prefix_tokens", 0)
        patches = features[:, prefix:]
        if math.isqrt(patches.shape[1]) ** 2 != patches.shape[1] and not hasattr(model, "num_prefix_tokens"):
            # a class token hides among these; taking it for a patch would spoil everything behind it
            raise InputError(
                f"which of the {patches.shape[1]} tokens of {kind} are patches is not known: it needs its own adapter"
            )
        class_token = prefix > 0 and getattr(model, "cls_token", None) is not None
        return token_parts(patches, features[:, :prefix], class_token=class_token)


def _why_not_hidden(model: nn.Module) -> str:
    """Why positions stay visible in a model that no adapter of its own handles."""
    if has_overlapping_convolution(model):
        return "and its convolutions look across patches, so hiding positions would not hide the order of patches"
    kind = type(model).__name__
    return f"and {REASONS.get(kind, f'there is no adapter for the way in which {kind} uses them')}"


def _first_stride(model: Any) -> int:
    """Pixels per step of the finest features that timm lists; 1 where it lists none."""
    info = getattr(model, "feature_info", None)
    stride = info[0].get("reduction") if isinstance(info, list) and info else None
    return int(stride or 1)  # ConViT's list says 0


def _pooled(model: Any, features: Tensor) -> Tensor:
    """(B, F) mean of features over their places: (B, F, h, w), (B, h, w, F) or (B, N, F)."""
    if features.ndim == 4:
        return channels_first(model, features).mean((2, 3))
    return features.mean(1) if features.ndim == 3 else features


ADAPTER = Pixels
EXAMPLE = ("test_resnet", {"num_classes": 10})
