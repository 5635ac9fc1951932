"""Defences: what a client does before its update leaves. They combine with +, as in mjp:0.27+bf16+batch:8.

none            the plain gradient of one picture
no-pe           a model without position embeddings
frozen-pe       position embeddings are not trained, so they have no gradient
withheld-pe     they are trained, but their gradients (and those of the localization head) stay at home
jp:γ            jigsaw: a share γ of the patches is shuffled, positions are kept
mjp:γ           masked jigsaw: shuffled patches share E_unk; a jigsaw of its own for every picture
mjp-shared:γ    the same with one jigsaw for the batch
noise:r         the gradient is clipped to norm 1, then Gaussian noise of norm r is added
dp:σ            DP-SGD through Opacus: every picture's gradient is clipped to norm 1, noise σ on each coordinate
prune:p         in every tensor the share p with the smallest magnitudes is set to zero
bf16            rounded to bfloat16
batch:B         a gradient of B pictures
fedavg:K        the weights after K local steps of SGD at learning rate 0.1, each step with a jigsaw of its own
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.method.config import MJPConfig, variant
from mjp.privacy.update import MOST_STEPS

CLIP = 1.0
LEARNING_RATE = 0.1  # of FedAvg's local steps; the server knows it
GRAMMAR = (
    "none, no-pe, frozen-pe, withheld-pe, jp:γ, mjp:γ, mjp-shared:γ, noise:r, dp:σ, prune:p, bf16, batch:B, fedavg:K"
)


@dataclass(frozen=True)
class Defence:
    positions: Literal["shared", "none", "frozen", "withheld"] = "shared"
    jigsaw: Literal["none", "jp", "mjp"] = "none"
    ratio: float = 0.0
    one_jigsaw: bool = False  # for the whole batch
    noise: float | None = None  # 0 clips alone
    dp: float | None = None
    prune: float = 0.0
    bf16: bool = False
    batch: int = 1
    steps: int = 0  # FedAvg's; 0: the gradient itself leaves
    text: str = "none"

    def config(self, known: MJPConfig) -> MJPConfig:
        """How the shared model is wrapped: a model that was trained with MJP keeps its own settings."""
        if self.positions == "none":
            return variant("B")
        if self.jigsaw == "mjp":
            base = known if known.position == "unknown" else variant("J")
            return replace(base, shuffle="jigsaw", ratio=self.ratio, shared=self.one_jigsaw)
        if self.jigsaw == "jp":  # shuffled, but every slot keeps its position, also in a model that has E_unk
            return variant("E", ratio=self.ratio)
        return known


def parse(text: str) -> Defence:
    """Read a defence such as `mjp:0.27+bf16`."""
    defence, seen = Defence(text=text), set[str]()
    for part in text.split("+"):
        name, _, value = part.strip().partition(":")
        if name not in _PARTS:
            raise InputError(f"unknown defence {part!r}: choose from {GRAMMAR}, joined by +")
        change = _PARTS[name](_number(part, value, name))
        if seen & change.keys():
            raise InputError(
                f"defence {text!r} says the same thing twice: {part!r} repeats or contradicts another part"
            )
        seen |= change.keys()
        defence = replace(defence, **change)
    if defence.positions == "none" and defence.jigsaw == "mjp":
        raise InputError(f"defence {text!r}: without position embeddings (no-pe) there is nothing for mjp to hide")
    return defence


def _number(part: str, value: str, name: str) -> float:
    """The number behind the colon, in its range."""
    if name not in _RANGES:
        if value:
            raise InputError(f"defence {part!r}: {name} takes no number")
        return 0.0
    low, high = _RANGES[name]
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not low <= number <= high or (name in ("batch", "fedavg") and number != int(number)):
        raise InputError(f"defence {part!r}: write {name}:NUMBER with a number from {low:g} to {high:g}")
    return number


_RANGES = {
    **dict.fromkeys(("jp", "mjp", "mjp-shared"), (0.0, 1.0)),
    **dict.fromkeys(("noise", "dp"), (0.0, 1e6)),
    "prune": (0.0, 1.0),
    "batch": (1.0, 4096.0),
    "fedavg": (1.0, float(MOST_STEPS)),
}
_PARTS: dict[str, Any] = {
    "none": lambda _: {},
    "no-pe": lambda _: {"positions": "none"},
    "frozen-pe": lambda _: {"positions": "frozen"},
    "withheld-pe": lambda _: {"positions": "withheld"},
    "jp": lambda x: {"jigsaw": "jp", "ratio": x},
    "mjp": lambda x: {"jigsaw": "mjp", "ratio": x},
    "mjp-shared": lambda x: {"jigsaw": "mjp", "ratio": x, "one_jigsaw": True},
    "noise": lambda x: {"noise": x},
    "dp": lambda x: {"dp": x},
    "prune": lambda x: {"prune": x},
    "bf16": lambda _: {"bf16": True},
    "batch": lambda x: {"batch": int(x)},
    "fedavg": lambda x: {"steps": int(x)},
}


def disguise(gradients: dict[str, Tensor], defence: Defence, generator: torch.Generator) -> dict[str, Tensor]:
    """Noise, pruning and rounding, in this order, on the tensors that are about to leave."""
    if defence.noise is not None:
        gradients = add_noise(gradients, defence.noise, generator)
    if defence.prune:
        gradients = {name: prune(gradient, defence.prune) for name, gradient in gradients.items()}
    if defence.bf16:
        gradients = {name: gradient.bfloat16().to(gradient.dtype) for name, gradient in gradients.items()}
    return gradients


def add_noise(gradients: dict[str, Tensor], relative: float, generator: torch.Generator) -> dict[str, Tensor]:
    """Clip all tensors together to norm 1, then add Gaussian noise of expected norm `relative`."""
    norm = torch.stack([g.double().norm() for g in gradients.values()]).norm()
    scale = (CLIP / norm.clamp(min=1e-300)).clamp(max=1)
    deviation = relative * CLIP / sum(g.numel() for g in gradients.values()) ** 0.5
    noisy = {}
    for name, gradient in gradients.items():
        noise = torch.empty_like(gradient).normal_(generator=generator)
        noisy[name] = gradient * scale.to(gradient) + deviation * noise
    return noisy


def prune(gradient: Tensor, share: float) -> Tensor:
    """Set the `share` of entries with the smallest magnitude to zero."""
    count = int(share * gradient.numel())
    if count == 0:
        return gradient
    smallest = gradient.abs().flatten().topk(count, largest=False).indices
    return gradient.flatten().index_fill(0, smallest, 0).view_as(gradient)
