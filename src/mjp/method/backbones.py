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

from mjp.errors import InputError
from mjp.method.config import MJPConfig
from mjp.method.plan import Plan, identity_plan
from mjp.method.shuffle import image_grid, shuffle_image, shuffle_tokens

DEFAULT_CELL = 16
NO_POSITIONS = (
    "it has no absolute position embeddings to hide or localise: use position='keep' and localize='none' (jigsaw only)"
)


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
    def features(self, model: Any, images: Tensor, plan: Plan, positions: Tensor | None) -> Tensor: ...


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
            reasons.append(NO_POSITIONS)
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

    def features(self, model: Any, images: Tensor, plan: Plan, positions: Tensor | None) -> Tensor:
        """timm's forward_features, with shuffled tokens and the given (B or 1, N, D) positions."""
        if plan.pixels is not None:  # SPP reaches into the patches, so it has to happen before they are embedded
            images = shuffle_image(images, plan, self.cell)
            plan = identity_plan(len(images), plan.grid, device=images.device)
        tokens = model.patch_embed(images)  # (B, N, D), or (B, h, w, D) when the size is dynamic
        tokens = shuffle_tokens(tokens.flatten(1, -2), plan, prefix=0)
        tokens = _with_prefix(model, tokens, positions)
        tokens = model.norm_pre(model.patch_drop(tokens))
        if model.grad_checkpointing and not torch.jit.is_scripting():
            tokens = checkpoint_seq(model.blocks, tokens)
        else:
            tokens = model.blocks(tokens)
        return model.norm(tokens)


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
            reasons.append(NO_POSITIONS + ", or give it some with ape=True")
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

    def features(self, model: Any, images: Tensor, plan: Plan, positions: Tensor | None) -> Tensor:
        images = shuffle_image(images, plan, self.cell)
        if positions is None:
            return model.forward_features(images)
        tokens = model.patch_embed(images)  # (B, h, w, D)
        tokens = tokens + positions.view(-1, *tokens.shape[1:])
        return model.norm(model.layers(tokens))


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
        if config.needs_positions:
            reasons.append(NO_POSITIONS)
        if config.ape:
            reasons.append("`ape` is for Swin: leave it unset")
        return reasons

    @classmethod
    def build(cls, model: Any, config: MJPConfig) -> "Pixels":
        cell = config.cell or DEFAULT_CELL
        return cls((cell, cell))

    def check(self, model: Any, images: Tensor) -> None:
        image_grid(images, self.cell)

    def table(self, model: Any, grid: tuple[int, int] | None, extra: Tensor | None) -> Tensor | None:
        return None

    def features(self, model: Any, images: Tensor, plan: Plan, positions: Tensor | None) -> Tensor:
        return model.forward_features(shuffle_image(images, plan, self.cell))


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
