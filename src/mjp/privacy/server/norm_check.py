"""What the first LayerNorm says about a patch alone, whatever the others are.

The rows of [∂L/∂W_qkv, ∂L/∂b_qkv] span the normalised tokens, each with a 1 behind it. Linear equations leave a patch
open along x = a + z F, and so is its centred token: but to normalise is to divide by its deviation, and only where that
is right do the 1 and the token fit together. This is one more equation for every patch, which is not linear.

How well it holds for the truth is known: noise e in the numbers of the gradient tilts direction k of the span by
e / σ_k (σ: the singular values), so a token is off by e·(Σ_k (c_k / σ_k)²)^½ in every dimension, c its coordinates.
"""

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from mjp.privacy.server.needs import NEEDS
from mjp.privacy.server.view import View

WEIGHT = "blocks.0.attn.qkv.weight"
BIAS = "blocks.0.attn.qkv.bias"
MIN_GAP = 1.5  # between the last singular value of the tokens and the first of the noise
MAX_EXCESS = 9.0  # of the squared misfit over what noise explains


class NormCheck:
    """`mask` (N,): the patches that share E_unk. `usable` says whether the update holds this equation."""

    def __init__(self, view: View, mask: Tensor) -> None:
        self.view = view
        self.usable = all(NEEDS[need].present(view) for need in ("qkv", "norm")) and BIAS in view.gradients
        if not self.usable:
            return
        gradient = torch.cat([view.gradients[WEIGHT], view.gradients[BIAS].unsqueeze(1)], 1)  # (3D, D + 1)
        tokens = len(view.table) + view.vit.num_prefix_tokens
        self.spare = gradient.shape[1] - tokens
        if self.spare < 2:
            self.usable = False
            return
        _, values, rows = torch.linalg.svd(gradient, full_matrices=False)
        self.usable = bool(values[tokens - 1] > MIN_GAP * values[tokens])
        self.rows = rows[:tokens]  # (T, D + 1)
        noise = float(values[tokens:].norm()) / ((len(gradient) - tokens) * self.spare) ** 0.5
        floor = view.resolution / 100 * float(gradient.square().mean().sqrt())
        self.tilts = max(noise, floor) / values[:tokens]
        positions = view.table.clone()
        if view.model.unknown is not None:
            positions[mask] = view.model.unknown.detach().double()
        self.positions = positions + view.bias  # (N, D)

    def deviations(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        """(N, n) squared misfits of (N, n, P) candidates, in units of what noise explains, and the squared unit."""
        norm = self.view.vit.blocks[0].norm1
        weight, shift = norm.weight.detach().double(), norm.bias.detach().double()
        tokens = patches @ self.view.weight.T + self.positions.unsqueeze(1)
        tokens = layer_norm(tokens, weight.shape, weight, shift, norm.eps)
        tokens = torch.cat([tokens, torch.ones_like(tokens[..., :1])], -1)
        along = tokens @ self.rows.T  # (N, n, T)
        unit = (along * self.tilts).square().sum(-1)
        return (tokens - along @ self.rows).square().sum(-1) / unit, unit

    def log_likelihood(self, patches: Tensor) -> Tensor:
        """(N, n) of candidates; −∞ where noise does not explain the misfit."""
        misfit, unit = self.deviations(patches)
        likelihood = -(misfit + self.spare * unit.log()) / 2
        return likelihood.masked_fill(misfit > MAX_EXCESS * self.spare, -torch.inf)


def find_norm_check(view: View, mask: Tensor) -> NormCheck | None:
    """None where the update does not hold this equation, or noise hides it."""
    check = NormCheck(view, mask)
    return check if check.usable else None
