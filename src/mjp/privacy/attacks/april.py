"""APRIL (Lu et al., CVPR 2022), closed form on a modified network: a first block without LayerNorm and residual.

The input of attention is then z = x Wᵀ + b + E itself, and with its projections W_q, W_k, W_v

    B = W_qᵀ ∂L/∂W_q + W_kᵀ ∂L/∂W_k + W_vᵀ ∂L/∂W_v = Aᵀ z,   A = ∂L/∂z = ∂L/∂E

so z solves Aᵀ z = B; E, b and the prefix tokens are public, and the patch projection gives the pixels. Nobody trains
this network: its leakage must not be put beside the accuracy of another. A is badly conditioned (1e7 at
initialisation), so the attack needs gradients in float64.
"""

import copy
from typing import Any

import torch
from timm.models import VisionTransformer
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from mjp.method.model import MJP
from mjp.privacy.server.linear import solve_spanned
from mjp.privacy.server.needs import require
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME = "april"
TITLE = "APRIL (modified network: block 0 without LayerNorm and residual)"
HELP = "the published closed form; on a network whose first block has no LayerNorm and no residual"
NEEDS = ("one", "positions", "qkv", "no_norm")


class BareBlock(nn.Module):
    """A timm block with bare attention: no LayerNorm before it, no residual connection around it."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2, self.mlp = nn.Identity(), block.attn, block.norm2, block.mlp

    def forward(self, x: Tensor) -> Tensor:
        x = self.attn(x)
        return x + self.mlp(self.norm2(x))


def network(model: MJP) -> MJP:
    """The network that APRIL attacks, with the same weights; a network that cannot be modified is returned as it is."""
    modified = copy.deepcopy(model)
    if _fits(modified.model):
        blocks: Any = modified.model.blocks
        blocks[0] = BareBlock(blocks[0])
    return modified


def _fits(vit: Any) -> bool:
    """Whether E is added directly before a first block of timm's standard kind."""
    if not isinstance(vit, VisionTransformer) or not isinstance(vit.norm_pre, nn.Identity):
        return False
    return isinstance(vit.blocks[0], Block | BareBlock)


def run(view: View) -> Reconstruction:
    if not _fits(view.vit):
        raise Refused("this model does not have timm's standard block right behind the position embeddings")
    require(view, *NEEDS)
    tokens, condition = recover_tokens(view)
    prefix = view.vit.num_prefix_tokens
    pixels = tokens[prefix:] - view.bias - view.table  # (N, D) = X Wᵀ
    basis = torch.linalg.svd(view.weight, full_matrices=False)[2]  # the pixels that W can see
    noise = min(view.resolution * condition, 1.0) * float(pixels.square().mean().sqrt())
    all_pixels = torch.eye(view.weight.shape[1], dtype=basis.dtype)
    patches = solve_spanned(view, all_pixels, view.weight, pixels.T, noise)
    return view.reconstruction(patches, condition=condition, open_dimensions=len(all_pixels) - len(basis))


def recover_tokens(view: View) -> tuple[Tensor, float]:
    """z (T, D), and the condition number of A."""
    mixing, mixed = equations(view)
    values = torch.linalg.svdvals(mixing)
    return solve(mixing, mixed), float(values[0] / values[-1].clamp(min=1e-300))


def equations(view: View) -> tuple[Tensor, Tensor]:
    """A (T, D) and B (D, D) of Aᵀ z = B."""
    gradient = view.gradients["blocks.0.attn.qkv.weight"]  # (3D, D)
    weight = view.vit.blocks[0].attn.qkv.weight.detach().double()
    mixing = torch.cat([_prefix_rows(view), view.positions])
    return mixing, weight.T @ gradient  # the sum over queries, keys and values


def _prefix_rows(view: View) -> Tensor:
    """The rows of A for class and register tokens: of ∂L/∂E, or of the tokens themselves where E has no rows for them.

    The rows of the patches come from `view.positions`, which leaves the localization loss out.
    """
    rows = view.gradients["pos_embed"][0, : -len(view.table)]
    if len(rows) == view.vit.num_prefix_tokens:
        return rows
    names = [name for name in ("cls_token", "reg_token") if getattr(view.vit, name, None) is not None]
    if not view.vit.no_embed_class or not all(name in view.gradients for name in names):
        raise Refused("the update lacks the gradients of the class and register tokens, which have no positions")
    return torch.cat([view.gradients[name][0] for name in names])


def solve(mixing: Tensor, mixed: Tensor, driver: str = "gelsy") -> Tensor:
    """z (T, D). `gelsy` gives what `gelsd` gives, in a fraction of the time."""
    return torch.linalg.lstsq(mixing.T, mixed, driver=driver).solution
