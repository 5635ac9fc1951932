"""Between pictures, tensors in [0, 1], and the normalised tensors that networks take."""

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def to_tensor(picture: Image.Image) -> Tensor:
    """(3, H, W) in [0, 1] from an RGB picture."""
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255


def to_image(pixels: Tensor) -> Image.Image:
    """An 8-bit picture from (3, H, W); values beyond [0, 1] are clipped."""
    return Image.fromarray((pixels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous().numpy())


def normalise(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(..., C, H, W) in [0, 1] as a network takes it."""
    return (pixels - per_channel(mean, pixels)) / per_channel(std, pixels)


def denormalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """The inverse: (..., C, H, W) in [0, 1] of what a network took."""
    return images * per_channel(std, images) + per_channel(mean, images)


def per_channel(values: Sequence[float], like: Tensor) -> Tensor:
    """(C, 1, 1): a value for every channel, of the dtype and on the device of `like`."""
    return like.new_tensor(values).view(-1, 1, 1)
