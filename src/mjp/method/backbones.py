"""How a plan enters a timm model. One adapter per family; a new family is a new adapter in `ADAPTERS`.

ViT     tokens are shuffled between patch embedding and position embedding; positions are timm's own table
Swin    pixels are shuffled; with `ape` an absolute position embedding is added behind the patch embedding
Pixels  any other image model: pixels are shuffled, and that is all

Adapters hold no weights and change nothing in the model: they call its own modules in its own order.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from timm.layers import PatchEmbed, resample_abs_pos_embed
from timm.models import SwinTransformer, SwinTransformerV2, VisionTransformer, checkpoint_seq
from timm.models.deit import VisionTransformerDistilled
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.method.config import MJPConfig
from mjp.method.plan import Plan, identity_plan
from mjp.method.shuffle import shuffle_image, shuffle_tokens
from mjp.pictures.patches import image_grid

DEFAULT_CELL = 16
NO_POSITIONS = "it has no absolute position embeddings to hide or localise"
JIGSAW_ONLY = "position='keep' and localize='none' give the jigsaw alone"


class Adapter(Protocol):
    """What the rest of the method needs to know about a model family."""

    @property
    def cell(self) -> tuple[int, int]: ...  # pixels of a jigsaw piece
    @property
    def tokens_per_cell(self) -> tuple[int, int]: ...  # tokens of the position table in a piece
    @classmethod
    def accepts(cls, model: nn.Module) -> bool: ...
    @classmethod
    def reasons_against(cls, model: Any, config: MJPConfig) -> list[str]: ...
    @classmethod
    def build(cls, model: Any, config: MJPConfig) -> "Adapter": ...
    def check(self, model: Any, images: Tensor) -> None: ...
    def table(self, model: Any, grid: tuple[int, int] | None, extra: Tensor | None) -> Tensor | None: ...
    def run(self, model: Any, images: Tensor, plan: Plan, positions: Tensor | None) -> tuple[Any, Tensor]: ...


@dataclass(frozen=True)
class ViT:
    """timm's VisionTransformer and its distilled sister: any prefix tokens, any grid, fixed or dynamic size."""

    cell: tuple[int, int]
    tokens_per_cell: ClassVar[tuple[int, int]] = (1, 1)

    @classmethod
    def accepts(cls, model: nn.Module) -> bool:
        return isinstance(model, VisionTransformer)

    @classmethod
    def reasons_against(cls, model: Any, config: MJPConfig) -> list[str]:
        reasons = []
        kind = type(model)
        if kind.forward_features is not VisionTransformer.forward_features or kind._pos_embed not in (
            VisionTransformer._pos_embed,
            VisionTransformerDistilled._pos_embed,
        ):
            reasons.append(f"{kind.__name__} adds its positions in its own way: it would need an adapter of its own")
        embed = model.patch_embed
        if not isinstance(embed, PatchEmbed) or embed.proj.kernel_size != embed.proj.stride:
            reasons.append("its patches overlap or pass a convolutional stem: a non-overlapping PatchEmbed is needed")
        elif config.cell is not None and (config.cell, config.cell) != tuple(embed.patch_size):
            reasons.append(f"a ViT's jigsaw piece is its patch, {embed.patch_size}: leave `cell` unset")
        if model.pos_embed is None and config.needs_positions:
            reasons.append(f"{NO_POSITIONS}: {JIGSAW_ONLY}")
        if config.ape:
            reasons.append("`ape` is for Swin; a ViT has its own absolute position embedding: leave `ape` unset")
        return reasons

    @classmethod
    def build(cls, model: Any, config: MJPConfig) -> "ViT":
        height, width = model.patch_embed.patch_size
        return cls((height, width))

    def check(self, model: Any, images: Tensor) -> None:
        grid, own = image_grid(images, self.cell), tuple(model.patch_embed.grid_size)
        if grid != own and not model.dynamic_img_size:
            raise InputError(
                f"images of {tuple(images.shape[-2:])} give a grid of {grid}, the model was built for {own}: resize "
                "the images, call model.unwrap().set_input_size(img_size), or create it with dynamic_img_size=True"
            )

    def table(self, model: Any, grid: tuple[int, int] | None, extra: Tensor | None) -> Tensor | None:
        """The patch rows of timm's position table plus `extra`, (1, N, D), resampled to the grid if one is given."""
        if model.pos_embed is None:
            return None
        patches = model.pos_embed[:, _prefix_rows(model) :]
        return _resampled(patches if extra is None else patches + extra, model, grid)

    def run(self, model: Any, images: Tensor, plan: Plan, positions: Tensor | None) -> tuple[Any, Tensor]:
        """timm's forward, with shuffled tokens and the given (B or 1, N, D) positions; logits and features."""
        if plan.pixels is not None:  # SPP reaches into the patches, so it has to happen before they are embedded
            images = shuffle_image(images, plan, self.cell)
            plan = identity_plan(len(images), plan.grid, device=images.device)
        tokens = model.patch_embed(images)  # (B, N, D), or (B, h, w, D) when the size is dynamic
        tokens = shuffle_tokens(tokens.flatten(1, -2), plan, prefix=0)
        tokens = _with_prefix(model, tokens, positions)
        tokens = model.norm_pre(model.patch_drop(tokens))
        tokens = checkpoint_seq(model.blocks, tokens) if model.grad_checkpointing else model.blocks(tokens)
        tokens = model.norm(tokens)
        features = model.forward_head(tokens, pre_logits=True)
        if isinstance(model, VisionTransformerDistilled):  # two heads, each on a token of its own
            return model.forward_head(tokens), features
        return model.head(features), features


@dataclass(frozen=True)
class Swin:
    """Swin (V1, V2). Its relative position bias is part of every attention layer and is never hidden."""

    cell: tuple[int, int]
    tokens_per_cell: tuple[int, int]

    @classmethod
    def accepts(cls, model: nn.Module) -> bool:
        return isinstance(model, SwinTransformer | SwinTransformerV2)

    @classmethod
    def reasons_against(cls, model: Any, config: MJPConfig) -> list[str]:
        reasons = []
        cell, patch = config.cell or DEFAULT_CELL, model.patch_embed.patch_size
        if cell % patch[0] or cell % patch[1]:
            reasons.append(f"a jigsaw piece of {cell} pixels is not a multiple of its patch {tuple(patch)}: set `cell`")
        if config.needs_positions and not config.ape:
            reasons.append(f"{NO_POSITIONS}: ape=True gives it some, {JIGSAW_ONLY}")
        return reasons

    @classmethod
    def build(cls, model: Any, config: MJPConfig) -> "Swin":
        cell, patch = config.cell or DEFAULT_CELL, model.patch_embed.patch_size
        return cls((cell, cell), (cell // patch[0], cell // patch[1]))

    def check(self, model: Any, images: Tensor) -> None:
        image_grid(images, self.cell)

    def table(self, model: Any, grid: tuple[int, int] | None, extra: Tensor | None) -> Tensor | None:
        """Its own positions are all relative, so an absolute table is `extra` or nothing."""
        if extra is None:
            return None
        rows, columns = self.tokens_per_cell
        return _resampled(extra, model, None if grid is None else (grid[0] * rows, grid[1] * columns))

    def run(self, model: Any, images: Tensor, plan: Plan, positions: Tensor | None) -> tuple[Any, Tensor]:
        tokens = model.patch_embed(shuffle_image(images, plan, self.cell))  # (B, h, w, D)
        if positions is not None:
            tokens = tokens + positions.view(-1, *tokens.shape[1:])
        features = model.forward_head(model.norm(model.layers(tokens)), pre_logits=True)
        return model.head.fc(features), features


@dataclass(frozen=True)
class Pixels:
    """Every other image model: MJP is the jigsaw on its input."""

    cell: tuple[int, int]
    tokens_per_cell: ClassVar[tuple[int, int]] = (1, 1)

    @classmethod
    def accepts(cls, model: nn.Module) -> bool:
        return True

    @classmethod
    def reasons_against(cls, model: Any, config: MJPConfig) -> list[str]:
        reasons = []
        if not (hasattr(model, "forward_features") and hasattr(model, "forward_head")):
            reasons.append("it has no forward_features and forward_head: wrap a timm image classifier")
        if config.needs_positions and getattr(model, "pos_embed", None) is not None:
            reasons.append(
                f"how {type(model).__name__} uses its position embeddings is not known here: it would need an adapter "
                f"of its own; {JIGSAW_ONLY}"
            )
        elif config.needs_positions:
            reasons.append(f"{NO_POSITIONS}: {JIGSAW_ONLY}")
        if config.ape:
            reasons.append("`ape` is for Swin: leave it unset")
        cell, stride = config.cell or DEFAULT_CELL, _first_stride(model)
        if cell % stride:
            reasons.append(
                f"a jigsaw piece of {cell} pixels is not a multiple of its first stride {stride}: set `cell`"
            )
        return reasons

    @classmethod
    def build(cls, model: Any, config: MJPConfig) -> "Pixels":
        cell = config.cell or DEFAULT_CELL
        return cls((cell, cell))

    def check(self, model: Any, images: Tensor) -> None:
        image_grid(images, self.cell)

    def table(self, model: Any, grid: tuple[int, int] | None, extra: Tensor | None) -> Tensor | None:
        return None

    def run(self, model: Any, images: Tensor, plan: Plan, positions: Tensor | None) -> tuple[Any, Tensor]:
        feature_map = model.forward_features(shuffle_image(images, plan, self.cell))
        return model.forward_head(feature_map), _pooled(model, feature_map)


ADAPTERS: tuple[type[Adapter], ...] = (ViT, Swin, Pixels)  # the first that accepts a model is taken


def adapter_for(model: nn.Module, config: MJPConfig) -> Adapter:
    """The adapter of this model; refuses, with all the reasons at once, what cannot be done to it."""
    reasons = reasons_against(model, config)
    if reasons:
        raise InputError(f"MJP cannot wrap this {type(model).__name__} as configured: " + "; ".join(reasons))
    return _family(model).build(model, config)


def reasons_against(model: Any, config: MJPConfig) -> list[str]:
    if not isinstance(model, nn.Module):
        return [f"it is a {type(model).__name__}, not a torch module: create it with timm.create_model(name)"]
    return _family(model).reasons_against(model, config)


def _family(model: nn.Module) -> type[Adapter]:
    return next(adapter for adapter in ADAPTERS if adapter.accepts(model))


def _first_stride(model: Any) -> int:
    """Pixels per step of the finest features that timm knows of; 1 if it knows of none."""
    known = getattr(model, "feature_info", None)
    return int(known[0]["reduction"]) if isinstance(known, list) and known else 1


def _pooled(model: Any, feature_map: Tensor) -> Tensor:
    """(B, F) mean of a feature map over its places: (B, F, h, w), (B, h, w, F) or (B, N, F)."""
    if feature_map.ndim == 4:
        return feature_map.mean((1, 2) if getattr(model, "output_fmt", "NCHW") == "NHWC" else (2, 3))
    return feature_map.mean(1) if feature_map.ndim == 3 else feature_map


def _resampled(table: Tensor, model: Any, grid: tuple[int, int] | None) -> Tensor:
    """timm's own interpolation of a (1, N, D) table; the table itself when the grid is the model's own."""
    own = model.patch_embed.grid_size
    return table if grid is None else resample_abs_pos_embed(table, list(grid), list(own), num_prefix_tokens=0)


def _prefix_rows(model: Any) -> int:
    """How many rows of timm's position table belong to prefix tokens."""
    return 0 if model.no_embed_class else int(model.num_prefix_tokens)


def _with_prefix(model: Any, tokens: Tensor, positions: Tensor | None) -> Tensor:
    """Class, distillation and register tokens in timm's order, with positions where timm adds them."""
    learned = [getattr(model, name, None) for name in ("cls_token", "dist_token", "reg_token")]
    prefix = [token for token in learned if token is not None]
    if positions is not None:
        tokens = tokens + positions
    if prefix:
        first = torch.cat(prefix, 1)  # (1, prefix, D)
        if positions is not None and not model.no_embed_class:
            first = first + model.pos_embed[:, : _prefix_rows(model)]
        tokens = torch.cat([first.expand(len(tokens), -1, -1), tokens], 1)
    return tokens if positions is None else model.pos_drop(tokens)
