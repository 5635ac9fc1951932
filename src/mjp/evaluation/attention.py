"""Where the class token looks: attention of the last block, one map per head."""

from typing import Any

import torch
from timm.models import VisionTransformer
from torch import Tensor

from mjp.common.errors import InputError
from mjp.method.model import MJP


def has_class_token(model: MJP) -> bool:
    """Whether its attention can be computed again here; rotations and biases, which others have, would be missing."""
    return isinstance(model.model, VisionTransformer) and model.model.cls_token is not None


@torch.no_grad()
def class_attention(model: MJP, images: Tensor) -> Tensor:
    """(B, heads, h, w) attention of the class token to the patches in the last block, softmax over all tokens.

    timm's fused attention does not return its weights, so they are computed again from the input of that block.
    """
    backbone: Any = model.eval().model
    if not has_class_token(model):
        raise InputError(f"this {type(backbone).__name__} has no class token, or attention that is not a plain ViT's")
    attention = backbone.blocks[-1].attn
    inputs: list[Tensor] = []
    handle = attention.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    try:
        model(images)
    finally:
        handle.remove()
    tokens = inputs[0]  # (B, T, D), normalised as the block does it
    batch, count, _ = tokens.shape
    parts = attention.qkv(tokens).view(batch, count, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
    query, key = attention.q_norm(parts[0]), attention.k_norm(parts[1])  # (B, heads, T, D/heads)
    weights = (query[:, :, :1] @ key.transpose(-2, -1) * attention.scale).softmax(-1)  # (B, heads, 1, T)
    height, width = backbone.patch_embed.grid_size
    patches: Tensor = weights[:, :, 0, backbone.num_prefix_tokens :]
    return patches.reshape(batch, attention.num_heads, height, width)
