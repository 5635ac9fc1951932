"""What happens to the position embeddings of masked slots."""

import torch
from torch import Tensor

from mjp.method.plan import Plan


def hide_positions(table: Tensor, unknown: Tensor, mask: Tensor) -> Tensor:
    """Ẽ_pos: E_unk at masked slots, E_pos elsewhere. table (1, N, D), unknown (D,), mask (B, N) → (B, N, D).

    torch.where and not arithmetic: a masked row of the table gets a gradient of exactly zero.
    """
    return torch.where(mask.unsqueeze(-1), unknown, table)


def token_mask(plan: Plan, tokens_per_cell: tuple[int, int]) -> Tensor:
    """The plan's mask at the resolution of the tokens, (B, h·a · w·b): a jigsaw piece may hold several tokens."""
    # when nothing is masked, one row stands for the batch: E_unk stays in the graph, as DDP wants it, at no cost
    mask = plan.mask if plan.budget else plan.mask[:1]
    rows, columns = tokens_per_cell
    if rows == columns == 1:
        return mask
    mask = mask.view(-1, *plan.grid).repeat_interleave(rows, 1).repeat_interleave(columns, 2)
    return mask.flatten(1)
