"""Corrupt a picture: look the corruption up by name, check the picture, apply it at its strength."""

from importlib import import_module
from typing import Any

from torch import Generator, Tensor

from mjp.common.errors import InputError
from mjp.evaluation.robustness.corruptions import CORRUPTIONS, SEVERITIES

MIN_SIDE = 8  # pixels: smaller pictures have no neighbourhood to blur


def corrupt(picture: Tensor, name: str, severity: int, generator: Generator) -> Tensor:
    """The corrupted picture, (3, H, W) in [0, 1]."""
    if name not in CORRUPTIONS:
        raise InputError(f"there is no corruption {name!r}: choose from {', '.join(CORRUPTIONS)}")
    if severity not in SEVERITIES:
        raise InputError(f"a severity is 1, 2, 3, 4 or 5, not {severity!r}")
    if picture.dim() != 3 or len(picture) != 3 or min(picture.shape[1:]) < MIN_SIDE or not picture.is_floating_point():
        raise InputError(
            f"a picture to corrupt is (3, H, W) in [0, 1] with sides of at least {MIN_SIDE}, not {picture.dtype} "
            f"{tuple(picture.shape)}"
        )
    corruption: Any = import_module(f"mjp.evaluation.robustness.corruptions.{name}")
    strength = corruption.STRENGTHS.at(severity, min(picture.shape[1:]))
    corrupted: Tensor = corruption.corrupt(picture, generator, *strength)
    return corrupted.clamp(0, 1)
