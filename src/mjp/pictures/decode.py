"""A picture file as a person sees it: turned as its EXIF mark says, 8 bits deep, what is transparent on black."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from mjp.common.errors import InputError


def as_seen(file: Image.Image) -> Image.Image:
    """RGB. Pillow alone would clip deep greys to white, and show the colours that lie under transparency."""
    picture = ImageOps.exif_transpose(file)
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        picture = _eight_bits(picture)
    if picture.has_transparency_data:
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "black"), picture.convert("RGBA"))
    return picture.convert("RGB")


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Deep grey values as 0..255: 16 bits by 257, floats in [0, 1] by 255, values beyond 0..255 by their own range."""
    values = np.nan_to_num(np.asarray(picture, dtype=np.float64), posinf=0, neginf=0)
    low, high = values.min(), values.max()
    if picture.mode.startswith("I;16"):
        values = values / 257
    elif picture.mode == "F" and low >= 0 and high <= 1:
        values = values * 255
    elif low < 0 or high > 255:
        values = (values - low) * (255 / max(high - low, 1e-9))
    return Image.fromarray(values.round().astype(np.uint8))


def open_picture(path: Path, size: int) -> Tensor:
    """A picture file as (1, 3, size, size) in [0, 1], its middle square."""
    try:
        with Image.open(path) as file:
            picture = as_seen(file)
    except FileNotFoundError as error:
        raise InputError(f"there is no picture {path}") from error
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} cannot be read as a picture: {error}") from error
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    picture = picture.resize((size, size), Image.Resampling.BICUBIC, (left, top, left + side, top + side))
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).unsqueeze(0) / 255
