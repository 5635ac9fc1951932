"""Where the class token looks: attention of the last block, one map per head."""

from typing import Any

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.method.model import MJP


@torch.no_grad()
def class_attention(model: MJP, images: Tensor) -> Tensor:
    """(B, heads, h, w) attention of the class token to the patches in the last block, softmax over all tokens.

    timm's fused attention does not give its weights away, so they are computed again from that block's input.
    """
    inner: Any = model.eval().model
    if getattr(inner, "cls_token", None) is None or not hasattr(inner, "blocks"):
        raise InputError(f"this {type(inner).__name__} has no class token whose attention could be shown")
    attention = inner.blocks[-1].attn
    seen: list[Tensor] = []
    handle = attention.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        model(images)
    finally:
        handle.remove()
    tokens = seen[0]  # (B, T, D), normalised as the block does it
    batch, count, _ = tokens.shape
    parts = attention.qkv(tokens).view(batch, count, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
    query, key = attention.q_norm(parts[0]), attention.k_norm(parts[1])  # (B, heads, T, D/heads)
    weights = (query[:, :, :1] @ key.transpose(-2, -1) * attention.scale).softmax(-1)  # (B, heads, 1, T)
    height, width = inner.patch_embed.grid_size
    patches: Tensor = weights[:, :, 0, inner.num_prefix_tokens :]
    return patches.reshape(batch, attention.num_heads, height, width)
