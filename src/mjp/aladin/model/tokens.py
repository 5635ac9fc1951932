"""The seam between vision and retrieval: tokens. Positions are settled before it, everything about words comes after.

    tokens = vision_tokens(backbone, images)          a timm ViT or DeiT, or any timm model that gives a feature grid
    tokens = vision_tokens(mjp_model, images, plan)   under a jigsaw; `unknown` marks the slots whose position is hidden
    tokens = grid_tokens(features)                    a feature map of whatever origin

Patches that share E_unk are exchangeable: nothing after the seam may look at the order of patches.
"""

from typing import Any, NamedTuple

import torch
from timm.models import VisionTransformer
from torch import Tensor, nn
from torch.nn.functional import adaptive_max_pool2d

from mjp.common.errors import InputError
from mjp.method.model import MJP
from mjp.method.plan import Plan
from mjp.method.shuffle import shuffle_image


class Tokens(NamedTuple):
    """What a vision backbone says about a batch of pictures."""

    cls: Tensor  # (B, D): one token for the whole picture
    patches: Tensor  # (B, R, D)
    valid: Tensor  # (B, R) bool: False is padding
    unknown: Tensor  # (B, R) bool: True where the position is hidden (E_unk)


def vision_tokens(backbone: nn.Module, images: Tensor, plan: Plan | None = None) -> Tokens:
    """The tokens of (B, C, H, W) images. The backbone is used as it is: call eval() for features without dropout."""
    if isinstance(backbone, MJP):
        return _mjp_tokens(backbone, images, plan)
    if plan is not None:
        raise InputError(f"a plan needs a model that can carry it out: wrap this {type(backbone).__name__} in mjp.MJP")
    if not hasattr(backbone, "forward_features"):
        raise InputError(f"{type(backbone).__name__} has no forward_features: use a timm model")
    return _split(backbone, backbone.forward_features(images))  # type: ignore[operator]


def grid_tokens(features: Tensor) -> Tokens:
    """The cells of a (B, D, h, w) feature map as patches in reading order, their mean as class token."""
    patches = features.flatten(2).transpose(1, 2)  # (B, h·w, D)
    return _tokens(patches.mean(1), patches)


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


def _mjp_tokens(model: MJP, images: Tensor, plan: Plan | None) -> Tokens:
    """The tokens that MJP's own forward hands to the classifier."""
    if plan is None and model.training:
        raise InputError("without a plan, tokens are those of the plain picture: call eval() on the model first")
    inner: Any = model.model
    if not isinstance(getattr(inner, "norm", None), nn.Module):  # a convolutional network: the jigsaw is on its input
        pictures = images if plan is None else shuffle_image(images, plan, model.adapter.cell)
        return _split(inner, inner.forward_features(pictures))
    caught: list[Tensor] = []
    hook = inner.norm.register_forward_hook(lambda module, given, result: caught.append(result))
    try:
        model(images, plan)
    finally:
        hook.remove()
    tokens = _split(inner, caught[-1])
    return tokens if plan is None else tokens._replace(unknown=_hidden(model, plan, tokens))


def _hidden(model: MJP, plan: Plan, tokens: Tokens) -> Tensor:
    """(B, R): which tokens have no position of their own. A token that covers several pieces is hidden if any is."""
    if model.unknown is None:
        return torch.zeros_like(tokens.unknown)
    count, (rows, columns) = tokens.patches.shape[1], plan.grid
    if count == rows * columns:
        return plan.mask
    height = max(round((count * rows / columns) ** 0.5), 1)
    pieces = plan.mask.view(-1, 1, rows, columns).float()
    return adaptive_max_pool2d(pieces, (height, count // height)).flatten(1).bool()


def _split(model: Any, features: Tensor) -> Tokens:
    """Features as timm's models give them: (B, prefix + N, D), (B, D, h, w), or (B, h, w, D)."""
    if features.ndim == 4:
        channels_last = getattr(model, "output_fmt", "NCHW") == "NHWC"
        return grid_tokens(features.permute(0, 3, 1, 2) if channels_last else features)
    if features.ndim != 3:
        raise InputError(f"{type(model).__name__} gives features of shape {tuple(features.shape)}, which has no tokens")
    patches = features[:, getattr(model, "num_prefix_tokens", 0) :]
    has_class = isinstance(model, VisionTransformer) and model.has_class_token
    return _tokens(features[:, 0] if has_class else patches.mean(1), patches)


def _tokens(cls: Tensor, patches: Tensor) -> Tokens:
    everywhere = torch.ones(patches.shape[:2], dtype=torch.bool, device=patches.device)
    return Tokens(cls, patches, everywhere, torch.zeros_like(everywhere))
