"""Pictures and masks as the network sees them: random crops in training, whole pictures in evaluation.

Picture and mask always go through the same resizing, cropping and flipping. What lies outside a picture is its mean
colour, and void in the mask. All randomness of a crop comes from a seed that is handed in with its number.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import Dataset

from mjp.common.errors import InputError
from mjp.pictures.tensors import normalise, to_tensor
from mjp.segmentation.config import SegmentConfig
from mjp.segmentation.folders import Scenes
from mjp.segmentation.metrics import IGNORE


@dataclass(frozen=True)
class Look:
    """How large pictures are, and how their pixels are normalised."""

    short_side: int | None
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def size(self, picture: Image.Image, factor: float = 1.0) -> tuple[int, int]:
        """(width, height) of the resized picture."""
        factor *= 1.0 if self.short_side is None else self.short_side / min(picture.size)
        width, height = (max(round(side * factor), 1) for side in picture.size)
        return width, height

    def image(self, picture: Image.Image, size: tuple[int, int]) -> Tensor:
        """(3, H, W), normalised."""
        if picture.size != size:
            picture = picture.resize(size, Image.Resampling.BILINEAR)
        return normalise(to_tensor(picture), self.mean, self.std)


class Crops(Dataset[tuple[Tensor, Tensor, str]]):
    """(number, seed) → image (3, S, S), classes (S, S), and why the picture could not be read ("" if it could).

    The reason is returned, not raised: an exception in a worker process arrives as a traceback.
    """

    def __init__(self, scenes: Scenes, look: Look, config: SegmentConfig) -> None:
        self.scenes, self.look, self.config = scenes, look, config

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor, str]:
        number, seed = key
        crop = self.config.crop
        try:
            picture, classes = self.scenes.load(number)
        except InputError as error:
            return torch.zeros(3, crop, crop), torch.full((crop, crop), IGNORE), str(error)
        draws = torch.rand(4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist()
        image, truth = random_view(picture, classes, self.look, self.config, draws)
        return image, truth, ""


class WholePictures(Dataset[tuple[Tensor, Tensor, str]]):
    """number → image (3, h, w), resized; classes (H, W), in the mask's own size; why it could not be read."""

    def __init__(self, scenes: Scenes, look: Look) -> None:
        self.scenes, self.look = scenes, look

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, str]:
        try:
            picture, classes = self.scenes.load(number)
        except InputError as error:
            return torch.zeros(3, 1, 1), torch.full((1, 1), IGNORE), str(error)
        return self.look.image(picture, self.look.size(picture)), torch.from_numpy(classes).long(), ""


def random_view(
    picture: Image.Image, classes: NDArray[np.uint8], look: Look, config: SegmentConfig, draws: list[float]
) -> tuple[Tensor, Tensor]:
    """Resize, crop and flip both by four numbers in [0, 1): size, top, left, flip."""
    size_draw, top_draw, left_draw, flip_draw = draws
    smallest, largest = config.scale
    size = look.size(picture, smallest + size_draw * (largest - smallest))
    image = look.image(picture, size)
    resized = Image.fromarray(classes).resize(size, Image.Resampling.NEAREST)
    truth = torch.from_numpy(np.array(resized)).long()
    height, width = truth.shape
    crop = config.crop
    top = int(top_draw * (max(height - crop, 0) + 1))
    left = int(left_draw * (max(width - crop, 0) + 1))
    image, truth = (part[..., top : top + crop, left : left + crop] for part in (image, truth))
    missing = (0, crop - truth.shape[1], 0, crop - truth.shape[0])  # on the right and below
    image, truth = pad(image, missing), pad(truth, missing, value=IGNORE)
    return (image.flip(-1), truth.flip(-1)) if flip_draw < config.flip else (image, truth)
