"""UpdateInfo: what a server knows about an update besides its numbers, and update.json, which holds it."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from mjp.common.errors import InputError, first_line, shorten
from mjp.common.read import read_object

Kind = Literal["gradient", "fedavg"]
MAX_LOCAL_STEPS = 1000  # the self-check simulates every one of them
MAX_SIDE = 4096  # pixels: a model is built for the stated size


@dataclass(frozen=True, kw_only=True)
class UpdateInfo:
    """Public information about an update; the same names are the keys of update.json.

    Attributes:
        kind: `gradient`, or `fedavg` for the weights after local steps.
        batch: Pictures in a step.
        size: Height and width of the client's pictures in pixels.
        mean: Subtracted from pixels in [0, 1] before the network, one number per colour.
        std: What they are then divided by.
        localize_weight: λ of the loss, cross entropy + λ·DAL.
        defence: What the client did before the update left, as `mjp attack --defences` writes it.
        steps: Local steps of plain SGD (FedAvg).
        lr: Their learning rate (FedAvg).
    """

    kind: Kind = "gradient"
    batch: int = 1
    size: tuple[int, int] = (224, 224)
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    localize_weight: float = 0.0
    defence: str = "none"
    steps: int = 1
    lr: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"kind of the update must be one of {', '.join(get_args(Kind))}, not {shorten(self.kind)}")
        if not isinstance(self.defence, str):
            raise InputError(f"defence of the update must be its text, not {shorten(self.defence)}")
        self._check_counts()
        self._check_numbers()
        if self.kind == "fedavg" and not self.lr > 0:
            raise InputError("a FedAvg update needs the learning rate of its local steps: lr above 0")
        if self.kind == "gradient" and self.steps != 1:
            raise InputError("several local steps make weights, not a gradient: state kind fedavg, or one step")

    def _check_counts(self) -> None:
        if not all(type(value) is int and value >= 1 for value in (self.batch, self.steps, *self.size)):
            raise InputError("batch, steps and size of the update must be whole numbers of at least 1")
        if self.steps > MAX_LOCAL_STEPS:
            raise InputError(f"an update of more than {MAX_LOCAL_STEPS} local steps cannot be checked")
        if max(self.size) > MAX_SIDE:
            raise InputError(f"pictures of more than {MAX_SIDE} pixels a side cannot be audited: check size")

    def _check_numbers(self) -> None:
        if (len(self.size), len(self.mean), len(self.std)) != (2, 3, 3) or not all(value > 0 for value in self.std):
            raise InputError("size must be (height, width); mean and std need three numbers each, std positive ones")
        numbers = (*self.mean, *self.std, self.localize_weight, self.lr)
        if not all(isinstance(value, int | float) and math.isfinite(value) for value in numbers):
            raise InputError("mean, std, localize_weight and lr of the update must be finite numbers")
        if not all(abs(value) <= 1000 for value in numbers) or not all(value >= 1e-3 for value in self.std):
            raise InputError("mean, std, localize_weight and lr must be at most 1000, and std at least 0.001")


def stated_info(path: Path, **changes: Any) -> dict[str, Any]:
    """What the json beside an update states, if there is one, overridden by the changes that are not None; checked."""
    path = path.with_suffix(".json")
    content = read_object(path, advice="write the information about the update again") if path.exists() else {}
    stated = {name: value for name, value in changes.items() if value is not None}
    return check_stated({**content, **stated}, source=str(path))


def check_stated(content: dict[str, Any], *, source: str) -> dict[str, Any]:
    """Single fields of an UpdateInfo, lists as tuples; refused unless they make a valid one."""
    names = {field.name for field in fields(UpdateInfo)}
    if unknown := sorted(set(content) - names):
        raise InputError(f"{source}: {shorten(unknown[0])} is not one of {', '.join(sorted(names))}")
    stated: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in content.items()}
    try:
        UpdateInfo(**stated)
    except TypeError as error:
        raise InputError(f"{source}: a value has the wrong type ({first_line(error)})") from error
    return stated
