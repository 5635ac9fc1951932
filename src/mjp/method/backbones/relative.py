"""Relative position biases over all patches (BEiT, timm's relpos ViTs): hidden patches share one bias per head.

A bias between two patches depends on their distance. With a hidden patch on either side it becomes a learned number per
head: one between two hidden patches (a patch and itself included), one from a hidden patch to a visible one, and one
back. Biases to and from the class token are timm's own: they are the same for all patches. Where the model also has an
absolute table, E_unk hides it as in a ViT, at the same time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import torch
from timm.models import Beit, VisionTransformerRelPos, checkpoint
from timm.models.beit import Attention as BeitAttention
from timm.models.beit import RelativePositionBias as BeitBias
from torch import Tensor, nn

from mjp.method.adapter import Obstacle, View
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
from mjp.method.positions import Positions, hide_biases

IN_BLOCKS = r"blocks\.\d+\.attn\.(relative_position_(bias_table|index)|rel_pos)"  # names of the parts with biases


@dataclass(frozen=True)
class Relative(ViT):
    """timm's BEiT and relpos ViTs: a table per block or one for all, or a small network in its place."""

    handles: ClassVar[tuple[type[nn.Module], ...]] = (Beit, VisionTransformerRelPos)

    @classmethod
    def obstacles(cls, model: Any, config: MJPConfig) -> list[Obstacle]:
        obstacles = [*code_obstacles(model, Beit, VisionTransformerRelPos), *patch_obstacles(model, config)]
        obstacles += position_obstacles(model, config, hides=("pos_embed", "rel_pos_bias", "shared_rel_pos", IN_BLOCKS))
        if _holders(model):
            obstacles += tableless_obstacles(model, config, "relative biases")
        return obstacles

    @classmethod
    def new_biases(cls, model: Any, *, mean: bool) -> Tensor | None:
        holders = _holders(model)
        if not holders:
            return None
        heads = int(model.blocks[0].attn.num_heads)
        biases = next(model.parameters()).new_zeros(len(holders), 3, heads)
        if mean:
            prefix = model.num_prefix_tokens
            means = [_without_dropout(holder)[0, :, prefix:, prefix:].mean((1, 2)) for holder in holders]
            biases += torch.stack(means).unsqueeze(1)
        return biases

    def forward_features(self, model: Any, images: Tensor, plan: Plan, positions: Positions) -> Tensor:
        tokens = embedded_tokens(model, images, plan, positions.absolute(), self.cell)
        tokens = model.pos_drop(tokens) if isinstance(model, Beit) else tokens
        shared = _bias(model.rel_pos_bias if isinstance(model, Beit) else model.shared_rel_pos)
        for number, block in enumerate(model.blocks):
            hide = partial(_hidden, positions=positions, number=number, prefix=model.num_prefix_tokens)
            step = partial(_run, block, hide=hide, shared=shared)
            tokens = checkpoint(step, tokens) if model.grad_checkpointing else step(tokens)
        normed: Tensor = model.norm(tokens)
        return normed


def _run(block: Any, tokens: Tensor, *, hide: Callable[[Tensor], Tensor], shared: Tensor | None) -> Tensor:
    """timm's own forward of a block, with hidden biases in the place of those that its attention holds.

    The biases are computed in here, so that gradient checkpointing does not keep them for every image and block.
    """
    attention = block.attn
    biases = [bias for bias in (_bias(attention), shared) if bias is not None]
    bias = hide(sum(biases[1:], biases[0])) if biases else None
    view = View(block, attn=partial(type(attention).forward, View(attention, **{_part(attention): None})))
    argument = "shared_rel_pos_bias" if isinstance(attention, BeitAttention) else "shared_rel_pos"
    result: Tensor = type(block).forward(view, tokens, **{argument: bias})
    return result


def _hidden(bias: Tensor, *, positions: Positions, number: int, prefix: int) -> Tensor:
    """The biases of a block, (1, H, T, T), with the unknown ones of its table where a patch is hidden."""
    if positions.mask is None or positions.biases is None:
        return bias
    unknown = positions.biases[number if len(positions.biases) > 1 else 0]
    return hide_biases(bias, unknown, positions.mask, prefix)


def _holders(model: Any) -> list[Any]:
    """What holds the biases of the model: its attention layers, or a part that they share; empty without biases."""
    attentions = [block.attn for block in model.blocks]
    if all(getattr(attention, _part(attention)) is not None for attention in attentions):
        return attentions
    shared = model.rel_pos_bias if isinstance(model, Beit) else model.shared_rel_pos
    return [] if shared is None else [shared]


def _part(attention: Any) -> str:
    """The name under which an attention layer holds its biases."""
    return "relative_position_bias_table" if isinstance(attention, BeitAttention) else "rel_pos"


def _bias(holder: Any) -> Tensor | None:
    """The biases, (1, H, T, T), of an attention layer or a part that blocks share; None if it has none."""
    if isinstance(holder, BeitAttention):
        return None if holder.relative_position_bias_table is None else holder._get_rel_pos_bias()
    if isinstance(holder, BeitBias):
        shared: Tensor = holder()
        return shared.unsqueeze(0)
    part = getattr(holder, "rel_pos", holder)
    bias: Tensor | None = None if part is None else part.get_bias()
    return bias


@torch.no_grad()
def _without_dropout(holder: nn.Module) -> Tensor:
    """The biases as inference sees them: a network in the place of a table has dropout."""
    training = holder.training
    bias = _bias(holder.eval())
    holder.train(training)
    return cast(Tensor, bias)


ADAPTER = Relative
EXAMPLE = (
    "beit_base_patch16_224",
    {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 48, "num_heads": 3, "num_classes": 10},
)
