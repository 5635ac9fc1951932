"""What flows out of the encoders: tokens of one modality, and codes, all that search needs of pictures or texts."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


class Encoded(NamedTuple):
    """Tokens of one modality after its encoder."""

    cls: Tensor  # (B, D)
    tokens: Tensor  # (B, N, D)
    valid: Tensor  # (B, N) bool


class Codes(NamedTuple):
    """Pictures or texts as search compares them."""

    vector: Tensor  # (B, D), length 1
    tokens: Tensor  # (B, N, A), length 1; a weighted word is as long as it counts
    valid: Tensor  # (B, N) bool
    unknown: Tensor  # (B, N) bool: patches without a position; False for words


def joined(parts: list[Codes]) -> Codes:
    """Several batches as one, padded to the longest."""
    longest = max(part.tokens.shape[1] for part in parts)
    batches = []
    for part in parts:
        missing = longest - part.tokens.shape[1]
        tokens = pad(part.tokens, (0, 0, 0, missing))
        batches.append(Codes(part.vector, tokens, pad(part.valid, (0, missing)), pad(part.unknown, (0, missing))))
    return Codes(*(torch.cat(column) for column in zip(*batches, strict=True)))
