"""Masked jigsaw that stays with its picture: an answer to attacks over many rounds.

A new jigsaw in every round masks other patches, and what is left open in one round is known from another. Here the
jigsaw depends on the client's secret key and the picture's hash alone, so that later rounds repeat the first.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mjp.privacy.defence import Defence, Number
from mjp.privacy.jigsaws import draw_jigsaw, masked_config

if TYPE_CHECKING:
    from torch import Tensor

    from mjp.common.secret_key import SecretKey
    from mjp.method.plan import Plan


def draw_sticky_jigsaw(images: Tensor, grid: tuple[int, int], ratio: float, key: SecretKey) -> Plan:
    from mjp.method.sticky import sticky_plan, tensor_digests

    draw = partial(draw_jigsaw, images[:1], grid, ratio)
    return sticky_plan(draw, tensor_digests(images), key).to(images.device)


DEFENCE = Defence(
    name="mjp-sticky",
    help="as mjp, but a picture keeps one jigsaw for the client's lifetime, from its secret key and the picture's hash",
    number=Number("γ", 0, 1),
    group="jigsaw",
    conflicts={"no-pe": "without position embeddings (no-pe) there is nothing for mjp-sticky to hide"},
    order=20,
    config=masked_config,
    keyed_plan=draw_sticky_jigsaw,
)
