"""What the losses compare: tokens and vectors of pictures and of texts, from one chunk, one process, or all of them."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Encoded
from mjp.common.distributed import World


class Compared(NamedTuple):
    """One side of a batch. What a phase does not use has width 0."""

    tokens: Tensor  # (B, N, A), as the alignment score compares them
    valid: Tensor  # (B, N) bool
    vector: Tensor  # (B, D), length 1


class Sides(NamedTuple):
    pictures: Compared
    texts: Compared


def compare(
    model: Aladin, encoded: Encoded, *, text: bool, aligns: bool, matches: bool, vector: Tensor | None = None
) -> Compared:
    """One side of a batch after its encoder; `vector`: that of a pretrained pair, which has no matching head."""
    count, length = encoded.valid.shape
    tokens = model.aligned(encoded, text=text) if aligns else encoded.tokens.new_zeros(count, length, 0)
    if not matches:
        vector = encoded.cls.new_zeros(count, 0)
    return Compared(tokens, encoded.valid, model.vectors(encoded, text=text) if vector is None else vector)


def joined(parts: list[Sides]) -> Sides:
    """Several chunks as one batch."""
    return Sides(*(in_one(list(side)) for side in zip(*parts, strict=True)))


def in_one(parts: list[Compared]) -> Compared:
    """One after the other, padded to the longest."""
    if len(parts) == 1:
        return parts[0]
    longest = max(part.valid.shape[1] for part in parts)
    missing = [longest - part.valid.shape[1] for part in parts]
    return Compared(
        torch.cat([pad(part.tokens, (0, 0, 0, n)) for part, n in zip(parts, missing, strict=True)]),
        torch.cat([pad(part.valid, (0, n)) for part, n in zip(parts, missing, strict=True)]),
        torch.cat([part.vector for part in parts]),
    )


def gathered(sides: Sides, world: World) -> Sides:
    """The batch of all processes. Gradients reach the part of this process only: the others have theirs."""
    return Sides(*(_gathered(side, world) for side in sides)) if world.size > 1 else sides


def leaves(sides: Sides) -> Sides:
    """The same values cut off from what computed them, in full precision; their gradients are kept."""
    return Sides(*(Compared(_leaf(side.tokens), side.valid, _leaf(side.vector)) for side in sides))


def push_gradients(sides: Sides, cut: Sides) -> None:
    """Continue a backward pass that has arrived at the leaves `cut` of `sides`."""
    values = [value for side in sides for value in (side.tokens, side.vector)]
    gradients = [leaf.grad for side in cut for leaf in (side.tokens, side.vector)]
    pairs = [(v, g.to(v.dtype)) for v, g in zip(values, gradients, strict=True) if g is not None and v.requires_grad]
    if pairs:
        torch.autograd.backward([value for value, _ in pairs], [gradient for _, gradient in pairs])


def _leaf(value: Tensor) -> Tensor:
    half = value.dtype in (torch.float16, torch.bfloat16)
    return (value.detach().float() if half else value.detach()).requires_grad_()


def _gathered(side: Compared, world: World) -> Compared:
    parts = [Compared(*tensors) for tensors in zip(*(world.gather(tensor) for tensor in side), strict=True)]
    parts[world.rank] = side
    return in_one(parts)
