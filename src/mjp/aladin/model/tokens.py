"""The seam between vision and retrieval: tokens. Positions are settled before it, everything about words comes after.

    tokens = vision_tokens(backbone, images)          a timm ViT or DeiT, or any timm model that gives a feature grid
    tokens = vision_tokens(mjp_model, images, plan)   under a jigsaw; `unknown` marks the slots whose position is hidden
    tokens = grid_tokens(features)                    a feature map of whatever origin

Patches that share E_unk are exchangeable: nothing after the seam may look at the order of patches.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.method.adapter import TokenParts, map_tokens
from mjp.method.backbones import split_tokens
from mjp.method.model import MJP
from mjp.method.plan import Plan


class Tokens(NamedTuple):
    """What a vision backbone says about a batch of pictures."""

    cls: Tensor  # (B, D): one token for the whole picture
    patches: Tensor  # (B, R, D)
    valid: Tensor  # (B, R) bool: False is padding
    unknown: Tensor  # (B, R) bool: True where the position is hidden (E_unk)


def vision_tokens(backbone: nn.Module, images: Tensor, plan: Plan | None = None) -> Tokens:
    """The tokens of (B, C, H, W) images. The backbone is used as it is: call eval() for features without dropout."""
    if isinstance(backbone, MJP):
        if plan is None and backbone.training:
            raise InputError("without a plan, tokens are those of the plain picture: call eval() on the model first")
        return _tokens(backbone.tokens(images, plan))
    if plan is not None:
        raise InputError(f"a plan needs a model that can carry it out: wrap this {type(backbone).__name__} in mjp.MJP")
    if hasattr(backbone, "summary_and_patches"):  # one tower of a pretrained pair
        summary, patches = backbone.summary_and_patches(images)  # type: ignore[operator]
        everywhere = torch.ones(patches.shape[:2], dtype=torch.bool, device=patches.device)
        return Tokens(summary, patches, everywhere, ~everywhere)
    if not hasattr(backbone, "forward_features"):
        raise InputError(f"{type(backbone).__name__} has no forward_features: use a timm model")
    return _tokens(split_tokens(backbone, backbone.forward_features(images)))  # type: ignore[operator]


def grid_tokens(features: Tensor) -> Tokens:
    """The cells of a (B, D, h, w) feature map as patches in reading order, their mean as class token."""
    return _tokens(map_tokens(features))


def some_patches(tokens: Tokens, share: float) -> Tokens:
    """A random share of the patches of every picture, drawn from the global generator; at least one."""
    count = max(1, round(share * tokens.patches.shape[1]))
    if count == tokens.patches.shape[1]:
        return tokens
    chosen = torch.rand(tokens.valid.shape).masked_fill(~tokens.valid.cpu(), 2).argsort(1)[:, :count]
    chosen = chosen.to(tokens.valid.device)
    patches = tokens.patches.gather(1, chosen.unsqueeze(-1).expand(-1, -1, tokens.patches.shape[-1]))
    return tokens._replace(
        patches=patches, valid=tokens.valid.gather(1, chosen), unknown=tokens.unknown.gather(1, chosen)
    )


def canonical_order(tokens: Tokens) -> Tokens:
    """The same tokens with the patches of unknown position in an order that depends on their values alone.

    Stored in reading order, tokens would give away the layout that E_unk hid. The others keep their places.
    """
    index = torch.arange(tokens.patches.shape[1], device=tokens.cls.device).expand_as(tokens.unknown)
    key = tokens.patches[..., 0].masked_fill(~tokens.unknown, torch.inf)
    ranked = key.argsort(dim=1, stable=True)  # the unknown ones first, by their first coordinate
    slots = torch.where(tokens.unknown, index, index.shape[1]).argsort(dim=1, stable=True)  # the unknown slots first
    source = index.scatter(1, slots, torch.where(tokens.unknown.gather(1, slots), ranked, slots))
    patches = tokens.patches.gather(1, source.unsqueeze(-1).expand_as(tokens.patches))
    return tokens._replace(patches=patches, valid=tokens.valid.gather(1, source))


def _tokens(parts: TokenParts) -> Tokens:
    return Tokens(parts.summary, parts.patches, torch.ones_like(parts.hidden), parts.hidden)
