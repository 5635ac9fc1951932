"""Gradient pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mjp.privacy.defence import Defence, Number

if TYPE_CHECKING:
    from torch import Tensor


def prune(tensor: Tensor, share: float) -> Tensor:
    """Set the `share` of entries with the smallest magnitude to zero."""
    count = int(share * tensor.numel())
    if count == 0:
        return tensor
    smallest = tensor.abs().flatten().topk(count, largest=False).indices
    return tensor.flatten().index_fill(0, smallest, 0).view_as(tensor)


DEFENCE = Defence(
    name="prune",
    help="in every tensor the share p with the smallest magnitudes is set to zero",
    number=Number("p", 0, 1),
    order=40,
    perturb=lambda tensors, share, _: {name: prune(tensor, share) for name, tensor in tensors.items()},
)
