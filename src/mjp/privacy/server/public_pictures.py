"""Pictures for an audit: those of the client, and the public ones from which an attacker learns what pictures are."""

from collections.abc import Container
from pathlib import Path

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.pictures.crop import float_square
from mjp.pictures.sets import Folder, Pictures, embedded
from mjp.privacy.server.prior import Prior, fit_prior

PUBLIC = 400  # pictures that a prior is measured on


def find_prior(folder: Path | None, size: tuple[int, int]) -> Prior:
    """Measured on a folder of classes, or on the embedded training pictures."""
    source: Pictures = embedded("train") if folder is None else Folder(folder)
    native = (32, 32) if folder is None else size
    return fit_prior(spread(source, PUBLIC, native), size)


def spread(
    source: Pictures, count: int, size: tuple[int, int], *, skip: int = 0, without: Container[int] = ()
) -> Tensor:
    """(n, 3, H, W) in [0, 1]: pictures spread evenly over the source, the middle square of each; `without` some."""
    count = min(count, len(source))
    numbers = [(k * len(source) // count + skip) % len(source) for k in range(count)]
    numbers = [number for number in numbers if number not in without]
    if not numbers:
        raise InputError("every picture is under attack, none is left for the prior: attack fewer, or state --prior")
    return torch.stack([float_square(source.load(number), size) for number in numbers])
