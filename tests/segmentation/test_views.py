"""Picture and mask stay together through every crop, which is a function of its seed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from mjp.segmentation.config import SegmentConfig
from mjp.segmentation.folders import find_scenes
from mjp.segmentation.metrics import IGNORE
from mjp.segmentation.views import Crops, Look, WholePictures, random_view

PLAIN = Look(None, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def config(**changes: Any) -> SegmentConfig:
    return SegmentConfig(data=Path("data"), **{"crop": 64, **changes})


def numbered(size: tuple[int, int]) -> tuple[Image.Image, "np.ndarray[Any, np.dtype[np.uint8]]"]:
    """A picture whose grey value is the class of the pixel, in blocks of 8."""
    height, width = size
    rows, columns = np.mgrid[:height, :width] // 8
    classes = (31 * rows + columns).astype(np.uint8) % 200 + 1
    return Image.fromarray(classes).convert("RGB"), classes


def view(draws: list[float], size: tuple[int, int] = (100, 140), **changes: Any) -> tuple[Tensor, Tensor]:
    return random_view(*numbered(size), PLAIN, config(**changes), draws)


@pytest.mark.parametrize("draws", [[0, 0, 0, 0.9], [0.5, 0.99, 0.3, 0.1], [0.999, 0.999, 0.999, 0.999]])
def test_picture_and_mask_stay_together(draws: list[float]) -> None:
    """Without resizing the grey value is the class at every pixel, wherever the crop is and however it is turned."""
    image, truth = view(draws, scale=(1.0, 1.0))
    assert image.shape == (3, 64, 64)
    assert truth.shape == (64, 64)
    assert torch.equal((image[0] * 255).round().long(), truth)


def test_resized_picture_and_mask_agree_but_for_edges() -> None:
    image, truth = view([0.7, 0.4, 0.6, 0.1], scale=(0.6, 1.8))
    agreement = ((image[0] * 255).round().long() == truth).float().mean()
    assert 0.5 < agreement < 1


def test_a_flip_mirrors_both() -> None:
    image, truth = view([0.5, 0.2, 0.2, 0.9], scale=(1.0, 1.0))
    mirrored, mirrored_truth = view([0.5, 0.2, 0.2, 0.1], scale=(1.0, 1.0))
    assert torch.equal(image.flip(-1), mirrored)
    assert torch.equal(truth.flip(-1), mirrored_truth)


def test_crops_reach_every_edge() -> None:
    _, classes = numbered((100, 140))
    for top, left in ((0, 0), (36, 76)):
        place = 0.0 if top == 0 else 0.999
        _, truth = view([0.0, place, place, 0.9], scale=(1.0, 1.0))
        assert np.array_equal(truth, classes[top : top + 64, left : left + 64])


def test_outside_a_small_picture_is_void() -> None:
    image, truth = view([0.0, 0.5, 0.5, 0.9], size=(40, 48), scale=(1.0, 1.0))
    assert (truth[40:] == IGNORE).all()
    assert (truth[:, 48:] == IGNORE).all()
    assert (truth[:40, :48] != IGNORE).all()
    assert not image[:, 40:].any()  # the mean colour


def test_a_crop_is_a_function_of_its_seed(camvid: Path) -> None:
    crops = Crops(find_scenes(camvid).splits["train"], PLAIN, config(crop=32))
    first, again, other = crops[0, 5], crops[0, 5], crops[0, 6]
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_pictures_are_evaluated_whole_and_masks_keep_their_size(camvid: Path) -> None:
    scenes = find_scenes(camvid).splits["val"]
    image, truth, problem = WholePictures(scenes, Look(96, PLAIN.mean, PLAIN.std))[0]
    assert image.shape == (3, 96, 96)
    assert truth.shape == (64, 64)
    assert problem == ""
