"""UpdateInfo: what a server knows about an update besides its numbers, and update.json, which holds it."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from mjp.common.errors import InputError, first_line, shorten
from mjp.common.read import read_object

Kind = Literal["gradient", "fedavg", "delta"]
Optimizer = Literal["sgd", "momentum", "adam", "adamw", "unknown"]
MAX_LOCAL_STEPS = 1000  # the self-check simulates every one of them
MAX_SIDE = 4096  # pixels: a model is built for the stated size


@dataclass(frozen=True, kw_only=True)
class UpdateInfo:
    """Public information about an update; the same names are the keys of update.json.

    Attributes:
        kind: `gradient`; `fedavg` for the weights after local steps; `delta` for their change, at any scale.
        batch: Pictures in a step.
        size: Height and width of the client's pictures in pixels.
        mean: Subtracted from pixels in [0, 1] before the network, one number per colour.
        std: What they are then divided by.
        localize_weight: λ of the loss, cross entropy + λ·DAL.
        defence: What the client did before the update left, as `mjp attack --defences` writes it.
        steps: Local steps (FedAvg, delta).
        lr: Their learning rate; for a delta 0 if it is not known.
        optimizer: Of the local steps, which start from its zero state.
        momentum: Of the optimizer `momentum`.
        weight_decay: Of the local steps.
        eps: Of Adam and AdamW.
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
    optimizer: Optimizer = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"kind of the update must be one of {', '.join(get_args(Kind))}, not {shorten(self.kind)}")
        if self.optimizer not in get_args(Optimizer):
            names = ", ".join(get_args(Optimizer))
            raise InputError(f"optimizer of the update must be one of {names}, not {shorten(self.optimizer)}")
        if not isinstance(self.defence, str):
            raise InputError(f"defence of the update must be its text, not {shorten(self.defence)}")
        self._check_counts()
        self._check_numbers()
        if self.kind == "fedavg" and not self.lr > 0:
            raise InputError("a FedAvg update needs the learning rate of its local steps: lr above 0")
        if self.kind == "gradient" and self.steps != 1:
            raise InputError("several local steps make weights, not a gradient: state kind fedavg, or one step")

    @property
    def scale(self) -> float:
        """What the change of the weights is divided by to get the mean step of the optimizer; 1 where unknown."""
        return self.steps * self.lr or 1.0

    @property
    def inertia(self) -> float:
        """How much of a local step the next one keeps."""
        return self.momentum if self.optimizer == "momentum" else 0.0

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
        numbers = (*self.mean, *self.std, self.localize_weight, self.lr, self.momentum, self.weight_decay, self.eps)
        if not all(isinstance(value, int | float) and math.isfinite(value) for value in numbers):
            raise InputError("mean, std, localize_weight, lr and the optimizer's settings must be finite numbers")
        if not all(abs(value) <= 1000 for value in numbers) or not all(value >= 1e-3 for value in self.std):
            raise InputError("mean, std, localize_weight and lr must be at most 1000, and std at least 0.001")
        if not 0 <= self.momentum < 1 or self.weight_decay < 0 or not self.eps > 0 or self.lr < 0:
            raise InputError("momentum must be from 0 to below 1, weight_decay and lr at least 0, eps above 0")


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
