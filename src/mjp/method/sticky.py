"""Jigsaws that stay with their picture: drawn from a client's secret key and the picture's hash, and from nothing else.

A picture that takes part in several steps with a new jigsaw each time is known better after each of them. The same
jigsaw again says nothing new about which patches are masked.
"""

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mjp.common.secret_key import SecretKey
from mjp.method.plan import Plan

DIGEST_BYTES = 32


def digest(pixels: bytes) -> bytes:
    """The hash by which a picture is known again."""
    return hashlib.sha256(pixels).digest()


def tensor_digests(images: Tensor) -> list[bytes]:
    """The hash of every picture in (B, C, H, W) as a network takes it, in float32 whatever its precision."""
    return [digest(image.detach().float().cpu().contiguous().numpy().tobytes()) for image in images]


def sticky_plan(draw: Callable[[torch.Generator], Plan], digests: Sequence[bytes], key: SecretKey) -> Plan:
    """The plan of a batch; `draw` makes the plan of a single picture from a generator on the CPU."""
    return join_plans([draw(key.generator("sticky jigsaw", name)) for name in digests])


def join_plans(plans: Sequence[Plan]) -> Plan:
    """Plans on one grid as the plan of one batch."""
    mask, permutation, inverse = (torch.cat(parts) for parts in zip(*(plan[:3] for plan in plans), strict=True))
    return Plan(mask, permutation, inverse, plans[0].grid, max(plan.budget for plan in plans))
