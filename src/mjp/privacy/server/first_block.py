"""The first block of a ViT as a server computes it: from patches to the activations that the rows of a gradient span.

For one picture ∂L/∂W₂ = Σ_t g_t h_tᵀ, where h_t are the activations of token t between the two layers of the MLP and
g_t is its gradient behind them. With T tokens in a network of width D ≥ T the rows of ∂L/∂W₂ span exactly h_1 … h_T.
The gradient of the bias, Σ_t g_t, continues the activations by a constant 1.
"""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.func import jvp, vmap

from mjp.privacy.server.view import View

WEIGHT = "blocks.0.mlp.fc2.weight"
BIAS = "blocks.0.mlp.fc2.bias"


class FirstBlock:
    """Public weights in float64; `mask` (N,): the patches that share E_unk."""

    def __init__(self, view: View, mask: Tensor) -> None:
        self.block: Any = copy.deepcopy(view.vit.blocks[0]).double().eval().requires_grad_(False)
        self.block.attn.fused_attn = False  # the fused kernel has no forward-mode derivative
        self.weight = view.weight
        self.prefix = _prefix_tokens(view)  # (t, D)
        positions = view.table.clone()
        if view.model.unknown is not None:
            positions[mask] = view.model.unknown.detach().double()
        self.positions = positions + view.bias  # (N, D)
        self.has_bias = BIAS in view.gradients
        gradient = view.gradients[WEIGHT]
        if self.has_bias:
            gradient = torch.cat([gradient, view.gradients[BIAS].unsqueeze(1)], 1)
        self.gradient = gradient  # (D, M)

    def mixed(self, patches: Tensor) -> Tensor:
        """(..., N, P) → (..., T, D): all tokens behind the attention, prefix tokens first."""
        tokens = patches @ self.weight.T + self.positions
        tokens = torch.cat([self.prefix.expand(*tokens.shape[:-2], *self.prefix.shape), tokens], -2)
        batch = tokens.reshape(-1, *tokens.shape[-2:])
        block = self.block
        batch = batch + block.ls1(block.attn(block.norm1(batch)))
        return batch.reshape(tokens.shape)

    def bent(self, tokens: Tensor) -> Tensor:
        """(..., D) tokens behind the attention → (..., M) activations of the MLP."""
        mlp = self.block.mlp
        hidden: Tensor = mlp.norm(mlp.act(mlp.fc1(self.block.norm2(tokens))))
        return torch.cat([hidden, torch.ones_like(hidden[..., :1])], -1) if self.has_bias else hidden

    def slopes(self, tokens: Tensor, directions: Tensor) -> Tensor:
        """(n, M, q) how the activations of (n, D) tokens change along (D, q) directions."""

        def along(direction: Tensor) -> Tensor:
            tangent: Tensor = jvp(self.bent, (tokens,), (direction.expand_as(tokens),))[1]
            return tangent

        return vmap(along)(directions.T).permute(1, 2, 0)


def has_plain_mlp(view: View) -> bool:
    """Whether the first block is one that this file computes: attention, then an MLP of two layers, both pre-norm."""
    block = view.vit.blocks[0]
    mlp = getattr(block, "mlp", None)
    parts = all(hasattr(block, name) for name in ("norm1", "attn", "ls1", "norm2"))
    layers = all(hasattr(mlp, name) for name in ("fc1", "act", "norm", "fc2"))
    return parts and layers and hasattr(block.attn, "fused_attn")


def _prefix_tokens(view: View) -> Tensor:
    """(t, D) class token and the like, with their positions: public."""
    count = view.vit.num_prefix_tokens
    like = next(view.vit.parameters())
    shape = (*view.grid, len(view.weight)) if view.vit.dynamic_img_size else (len(view.table), len(view.weight))
    with torch.no_grad():
        tokens: Tensor = view.vit._pos_embed(torch.zeros(1, *shape, dtype=like.dtype))
    return tokens[0, :count].double()
