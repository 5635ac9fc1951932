"""Pictures for an audit: those of the client, and the public ones from which an attacker learns what pictures are."""

from collections.abc import Container
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from mjp.common.errors import InputError
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
    return torch.stack([square(source.load(number), size) for number in numbers])


def square(picture: Image.Image, size: tuple[int, int]) -> Tensor:
    """The middle square of a picture, resized, (3, H, W) in [0, 1]."""
    pixels = torch.frombuffer(bytearray(picture.convert("RGB").tobytes()), dtype=torch.uint8)
    image = pixels.view(picture.height, picture.width, 3).permute(2, 0, 1).float() / 255
    side = min(image.shape[-2:])
    if side < 1:
        raise InputError("a picture without pixels cannot be audited")
    top, left = (image.shape[-2] - side) // 2, (image.shape[-1] - side) // 2
    image = image[:, top : top + side, left : left + side]
    if (side, side) == size:
        return image
    return interpolate(image.unsqueeze(0), size, mode="bicubic", antialias=True)[0].clamp(0, 1)
