"""Pictures of a set as tensors: those under attack, and public ones for a prior."""

from collections.abc import Container

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.pictures.crop import eight_bit_square, float_square
from mjp.pictures.sets import Pictures


def sample_pictures(
    source: Pictures,
    count: int,
    size: tuple[int, int],
    *,
    skip: int = 0,
    without: Container[int] = (),
    floats: bool = False,
) -> Tensor:
    """(n, 3, H, W) in [0, 1]: pictures spread evenly over the source, the middle square of each; `without` some.

    They are resized with 8 bits, as nearly every pipeline does it; `floats`: without that rounding.
    """
    square = float_square if floats else eight_bit_square
    numbers = [(number + skip) % len(source) for number in spread_numbers(len(source), count)]
    numbers = [number for number in numbers if number not in without]
    if not numbers:
        raise InputError("every picture is under attack, none is left for the prior: attack fewer, or state --prior")
    return torch.stack([square(source.load(number), size) for number in numbers])


def spread_numbers(total: int, count: int) -> list[int]:
    """At most `count` of the numbers 0 … total − 1, evenly spread."""
    count = min(count, total)
    return [k * total // count for k in range(count)]
