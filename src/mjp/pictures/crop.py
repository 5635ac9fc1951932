"""The middle square of a picture, and pictures brought to the size of a network's input.

Two resamplers. Nearly every pipeline resizes an 8-bit picture to an 8-bit picture (PIL) and makes a tensor of that, so
the pixels of a client are whole numbers, which attacks use: this is the default everywhere. Resizing floats leaves
pixels between the grey levels; audits do that on request.
"""

from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from mjp.common.errors import InputError
from mjp.pictures.decode import open_rgb
from mjp.pictures.tensors import to_tensor

Box = tuple[float, float, float, float]  # left, top, right, bottom


def middle_square(size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The box of the largest square in the middle of (width, height)."""
    side = min(size)
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    return left, top, left + side, top + side


def open_square(path: Path, size: int, *, max_pixels: int | None = None) -> Tensor:
    """The middle square of a picture file, resized with 8 bits, (1, 3, size, size) in [0, 1]."""
    picture = open_rgb(path, max_pixels=max_pixels)
    return resized(picture, (size, size), middle_square(picture.size)).unsqueeze(0)


def resized(picture: Image.Image, size: tuple[int, int], box: Box | None = None) -> Tensor:
    """A picture, or the part in a box, squeezed to (height, width) with 8 bits, (3, H, W) in [0, 1]."""
    height, width = size
    return to_tensor(picture.resize((width, height), Image.Resampling.BICUBIC, box=box))


def eight_bit_square(picture: Image.Image, size: tuple[int, int]) -> Tensor:
    """The middle square of a picture, resized with 8 bits, (3, H, W) in [0, 1]."""
    if not min(picture.size):
        raise InputError("a picture without pixels cannot be audited")
    return resized(picture, size, middle_square(picture.size))


def float_square(picture: Image.Image, size: tuple[int, int]) -> Tensor:
    """The middle square of a picture, resized with floats, (3, H, W) in [0, 1]."""
    if not min(picture.size):
        raise InputError("a picture without pixels cannot be audited")
    image = to_tensor(picture.crop(middle_square(picture.size)))
    if image.shape[1:] == torch.Size(size):
        return image
    return interpolate(image.unsqueeze(0), size, mode="bicubic", antialias=True)[0].clamp(0, 1)
