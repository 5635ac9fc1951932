"""Uniform noise of one grey level on the pictures: an answer to attacks that use that pixels are integers.

The noise of a picture depends on the client's secret key and the picture alone. Noise that is drawn anew in every round
would average out, and would make the spans of masked patches differ from round to round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mjp.privacy.defence import Defence

if TYPE_CHECKING:
    from torch import Tensor

    from mjp.common.secret_key import SecretKey


def add_dither(images: Tensor, std: Sequence[float], key: SecretKey) -> Tensor:
    from mjp.method.sticky import tensor_digests
    from mjp.pictures.dither import dither

    return dither(images, std, [key.generator("dither", name) for name in tensor_digests(images)])


DEFENCE = Defence(
    name="dither",
    help="uniform noise of one grey level on the pictures, so that pixels are not integers; the same in every round",
    order=15,
    pictures=add_dither,
)
