"""How pictures enter a model: stored with it, so that evaluation sees what training saw."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from mjp.common.errors import InputError

INTERPOLATIONS = ("bicubic", "bilinear", "nearest", "lanczos", "box", "hamming")
MAX_SIDE = 4096  # pixels: a file that asks for more is damaged


@dataclass(frozen=True)
class Preprocessing:
    """Resize the shorter side to size / crop_pct, cut the middle out, scale to [0, 1], subtract mean, divide by std."""

    size: tuple[int, int]  # height, width
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    crop_pct: float = 0.875
    interpolation: str = "bicubic"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> "Preprocessing":
        """Read it back from a file, which may come from anywhere: every value is checked."""
        if not isinstance(values, dict) or not {"size", "mean", "std"} <= set(values) <= set(cls.__annotations__):
            raise InputError(f"preprocessing must hold {', '.join(cls.__annotations__)}")
        size = values["size"]
        if not _numbers(size, 2, low=1, high=MAX_SIDE) or not all(isinstance(side, int) for side in size):
            raise InputError(f"preprocessing: size must be two whole numbers of 1 to {MAX_SIDE} pixels")
        if not _numbers(values["mean"], 3, low=-10, high=10) or not _numbers(values["std"], 3, low=1e-6, high=10):
            raise InputError("preprocessing: mean and std must be three numbers each, std above 0")
        crop_pct, interpolation = values.get("crop_pct", 0.875), values.get("interpolation", "bicubic")
        if not _numbers([crop_pct], 1, low=0.01, high=1):
            raise InputError("preprocessing: crop_pct must be a number above 0 and at most 1")
        if interpolation not in INTERPOLATIONS:
            raise InputError(f"preprocessing: interpolation must be one of {', '.join(INTERPOLATIONS)}")
        mean, std = (tuple(map(float, values[name])) for name in ("mean", "std"))
        return cls(tuple(size), mean, std, float(crop_pct), interpolation)  # type: ignore[arg-type]

    def transform(self, crop_pct: float | None = None) -> Any:
        """timm's evaluation transform, PIL picture → tensor; `crop_pct` in place of the stored one."""
        from timm.data import create_transform

        return create_transform(
            self.size,
            mean=self.mean,
            std=self.std,
            crop_pct=self.crop_pct if crop_pct is None else crop_pct,
            interpolation=self.interpolation,
        )


def _numbers(values: Any, count: int, *, low: float, high: float) -> bool:
    """Whether these are that many finite numbers within the bounds."""
    return (
        isinstance(values, list | tuple)
        and len(values) == count
        and all(type(value) in (int, float) and math.isfinite(value) and low <= value <= high for value in values)
    )
