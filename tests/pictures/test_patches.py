"""Patches of pictures, and what networks take."""

import pytest
import torch
from torch.nn.functional import unfold

from mjp.common.errors import InputError
from mjp.pictures.patches import patchify, unpatchify
from mjp.pictures.tensors import denormalise, normalise, to_image, to_tensor


@pytest.mark.parametrize("patch", [4, (4, 8), (2, 3)])
@pytest.mark.parametrize("batch", [(), (2,), (2, 5)])
def test_patches_are_those_of_unfold_and_go_back(patch: int | tuple[int, int], batch: tuple[int, ...]) -> None:
    images = torch.rand(*batch, 3, 8, 24, generator=torch.Generator().manual_seed(0))
    height, width = (patch, patch) if isinstance(patch, int) else patch
    patches = patchify(images, patch)
    expected = unfold(images.reshape(-1, 3, 8, 24), (height, width), stride=(height, width)).mT
    assert torch.equal(patches, expected.reshape(patches.shape))
    assert torch.equal(unpatchify(patches, (8 // height, 24 // width), patch), images)


def test_a_picture_that_a_patch_does_not_divide_is_refused() -> None:
    with pytest.raises(InputError, match="8x24 pixels do not divide into patches of 5x5"):
        patchify(torch.zeros(3, 8, 24), 5)


def test_normalising_has_an_inverse_and_keeps_the_dtype() -> None:
    pixels = torch.rand(2, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    images = normalise(pixels, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    assert images.dtype == torch.float64
    torch.testing.assert_close(images[:, 2], (pixels[:, 2] - 0.3) / 0.7)
    torch.testing.assert_close(denormalise(images, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)), pixels)


def test_pixels_survive_the_way_to_a_tensor_and_back() -> None:
    picture = to_image(torch.rand(3, 5, 7, generator=torch.Generator().manual_seed(0)) * 3 - 1)
    assert picture.size == (7, 5)
    assert to_image(to_tensor(picture)).tobytes() == picture.tobytes()
