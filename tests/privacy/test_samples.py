"""Which pictures are attacked, and which are public."""

import pytest
import torch

from mjp.common.errors import InputError
from mjp.pictures.sets import embedded
from mjp.privacy.samples import sample_pictures


def test_no_attacked_picture_is_in_the_prior() -> None:
    source = embedded("val")
    every = sample_pictures(source, 8, (32, 32))
    left = sample_pictures(source, 8, (32, 32), without=[0, len(source) // 2])
    assert torch.equal(left, every[[1, 2, 3, 5, 6, 7]])
    with pytest.raises(InputError, match="none is left"):
        sample_pictures(source, 8, (32, 32), without=range(len(source)))


def test_pictures_are_whole_grey_levels_unless_floats_are_requested() -> None:
    source = embedded("val")
    for floats in (False, True):
        levels = sample_pictures(source, 2, (48, 48), floats=floats) * 255
        assert torch.allclose(levels, levels.round(), atol=1e-4) is not floats
