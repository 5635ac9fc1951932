"""What happens to the position embeddings of masked slots."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_max_pool2d, pad

from mjp.method.plan import Plan


class Positions(NamedTuple):
    """The positions of one forward pass, as an adapter gets them."""

    table: Tensor | None  # (1, N, D) absolute positions of the patches; None: the model has none
    unknown: Tensor | None  # (D,) E_unk, which takes the place of hidden rows of the table
    mask: Tensor | None  # (B or 1, N) bool, True = hidden; None: every slot keeps its position
    rotation: Tensor | None = None  # (d/2,) learned angles of hidden slots in rotary models; None: they are not turned
    biases: Tensor | None = None  # (tables, 3, H) biases of hidden slots in models with relative positions

    def absolute(self) -> Tensor | None:
        """The table with its hidden rows replaced, (B or 1, N, D)."""
        if self.table is None or self.unknown is None or self.mask is None:
            return self.table
        return hide_positions(self.table, self.unknown, self.mask)


def hide_positions(table: Tensor, unknown: Tensor, mask: Tensor) -> Tensor:
    """Ẽ_pos: E_unk at masked slots, E_pos elsewhere. table (1, N, D), unknown (D,), mask (B, N) → (B, N, D).

    torch.where and not arithmetic: a masked row of the table gets a gradient of exactly zero.
    """
    return torch.where(mask.unsqueeze(-1), unknown, table)


def hide_biases(bias: Tensor, unknown: Tensor, mask: Tensor, prefix: int) -> Tensor:
    """Biases between tokens, with one number per head wherever a hidden patch is concerned.

    Args:
        bias: (1, H, T, T) from tokens (rows) to tokens (columns); T = prefix + N.
        unknown: (3, H) between hidden patches, from hidden to visible ones, and from visible to hidden ones.
        mask: (B, N) bool, True = hidden.
        prefix: How many tokens stand before the patches; their biases stay, they are the same for all patches.

    Returns:
        (B, H, T, T).
    """
    mask = pad(mask, (prefix, 0))
    patch = pad(torch.ones_like(mask[:1, prefix:]), (prefix, 0))  # (1, T)
    rows, columns = mask[:, None, :, None], mask[:, None, None, :]
    between, outward, inward = unknown[:, :, None, None]  # (H, 1, 1)
    shared = torch.where(rows & columns, between, torch.where(rows, outward, inward))
    return torch.where((rows | columns) & patch[:, None, :, None] & patch[:, None, None, :], shared, bias)


def token_mask(plan: Plan, tokens_per_cell: tuple[int, int]) -> Tensor:
    """The plan's mask at the resolution of the tokens, (B, h·a · w·b): a jigsaw piece may hold several tokens."""
    # when nothing is masked, one row stands for the batch: E_unk stays in the graph, as DDP wants it, at no cost
    mask = plan.mask if plan.budget else plan.mask[:1]
    rows, columns = tokens_per_cell
    if rows == columns == 1:
        return mask
    mask = mask.view(-1, *plan.grid).repeat_interleave(rows, 1).repeat_interleave(columns, 2)
    return mask.flatten(1)


def pooled_mask(plan: Plan, tokens: int) -> Tensor:
    """The plan's mask, (B, tokens): tokens in reading order, each masked if any piece that it covers is."""
    rows, columns = plan.grid
    if tokens == rows * columns:
        return plan.mask
    height = max(round((tokens * rows / columns) ** 0.5), 1)
    pieces = plan.mask.view(-1, 1, rows, columns).float()
    return adaptive_max_pool2d(pieces, (height, tokens // height)).flatten(1).bool()


def initial_unknown(table: Tensor, how: str, generator: torch.Generator) -> Tensor:
    """E_unk at the start, (D,): normal, the mean of the (1, N, D) table, or zeros."""
    if how == "mean":
        return table.detach().mean((0, 1))
    unknown = torch.zeros(table.shape[-1])
    if how == "normal":  # the law by which timm draws the table itself
        nn.init.trunc_normal_(unknown, std=0.02, generator=generator)
    return unknown.to(table)
