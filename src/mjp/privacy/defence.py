"""Defence: one thing that a client can do before its update leaves, described in one object.

The object says its name and number, its help line, which stages of the client's work it changes, and whether an
accuracy measured on the model may be printed beside it. The command line and the audit read it here; the report shows
what the audit wrote. One defence is one file in defences/. No torch is imported at module level, since `--help` lists
the defences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from mjp.common.secret_key import SecretKey
    from mjp.method.config import MJPConfig
    from mjp.method.model import MJP
    from mjp.method.plan import Plan

    Tensors = dict[str, Tensor]

CLIP_NORM = 1.0  # to which the defences that clip shorten a gradient


class Accuracy(Enum):
    """Which measured accuracy may stand beside a defence in a table."""

    NOT_CLAIMED = "none: what the defence costs in training was not measured"
    UNCHANGED = "that of the model: training is the same with and without the defence"
    JIGSAW = "that of the model under the jigsaw, with every slot keeping its position"
    MASKED_JIGSAW = "that of the model under the jigsaw, with E_unk in the masked slots"


class Number(NamedTuple):
    """The number behind the colon, as in mjp:0.27."""

    symbol: str
    low: float
    high: float
    whole: bool = False

    def allows(self, value: float) -> bool:
        return self.low <= value <= self.high and (not self.whole or value == int(value))


class LocalSteps(NamedTuple):
    """Steps of plain SGD before the weights leave; the server knows both."""

    number: int
    lr: float


@dataclass(frozen=True, kw_only=True)
class Defence:
    """A defence and the stages it changes; every stage function gets the defence's number (0 if it takes none)."""

    name: str
    help: str
    number: Number | None = None
    accuracy: Accuracy = Accuracy.NOT_CLAIMED
    group: str | None = None  # two defences of one group contradict each other; by default its name, "" for never
    conflicts: Mapping[str, str] = field(default_factory=dict)  # {name of another defence: why not with that one}
    package: str = ""  # a Python package that the client needs for it
    order: int = 50  # where several change one stage, and in the help: lower first

    # the shared model: (its MJPConfig, number) → the MJPConfig under which client and server wrap it
    config: Callable[[MJPConfig, float], MJPConfig] | None = None
    # pictures in a step
    batch: Callable[[float], int] | None = None
    # the jigsaw of a step: (normalised pictures (B, 3, H, W), grid, number, the client's generator) → Plan
    plan: Callable[[Tensor, tuple[int, int], float, torch.Generator], Plan] | None = None
    # the same, from the client's secret key: (normalised pictures, grid, number, key) → Plan
    keyed_plan: Callable[[Tensor, tuple[int, int], float, SecretKey], Plan] | None = None
    # the pictures before the network: (normalised pictures, std of the normalisation, key) → pictures
    pictures: Callable[[Tensor, Sequence[float], SecretKey], Tensor] | None = None
    # the gradient of a step: (network, pictures, labels, plan, number, generator) → {parameter name: gradient}
    gradients: Callable[[MJP, Tensor, Tensor, Plan, float, torch.Generator], Tensors] | None = None
    # number → deviation of the Gaussian noise on the sum, over the norm to which each picture's gradient is clipped
    multiplier: Callable[[float], float] | None = None
    # several steps, after which the weights leave instead of the gradient
    local_steps: Callable[[float], LocalSteps] | None = None
    # parameter name → whether the client trains it; what is not trained does not leave either
    trains: Callable[[str], bool] | None = None
    # parameter name → whether its tensor leaves
    sends: Callable[[str], bool] | None = None
    # the tensors that are about to leave: (tensors, number, generator) → tensors
    perturb: Callable[[Tensors, float, torch.Generator], Tensors] | None = None

    @property
    def exclusive(self) -> str:
        return self.name if self.group is None else self.group

    @property
    def grammar(self) -> str:
        """As a person writes it: mjp:γ."""
        return self.name if self.number is None else f"{self.name}:{self.number.symbol}"
