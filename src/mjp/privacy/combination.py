"""A combination of defences such as `mjp:0.27+bf16+batch:8`: its grammar, and what the parts do together.

Client and server both read it: the server knows the protocol, only the client has the random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from mjp.common.errors import InputError, shorten
from mjp.privacy.defence import Accuracy, Defence, LocalSteps
from mjp.privacy.defences import defences

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from mjp.common.secret_key import SecretKey
    from mjp.method.config import MJPConfig
    from mjp.method.plan import Plan


class Part(NamedTuple):
    defence: Defence
    number: float

    @property
    def canonical(self) -> str:
        number = int(self.number) if self.number.is_integer() else self.number
        return self.defence.name if self.defence.number is None else f"{self.defence.name}:{number}"


@dataclass(frozen=True)
class Combination:
    text: str
    parts: tuple[Part, ...]  # lower `order` first

    @property
    def canonical(self) -> str:
        """One text for all ways to write it: dp:.5+batch:2 and batch:2+dp:0.5 are the same."""
        return "+".join(part.canonical for part in self.parts)

    @property
    def batch(self) -> int:
        """Pictures in a step."""
        return next((part.defence.batch(part.number) for part in self.parts if part.defence.batch), 1)

    @property
    def local_steps(self) -> LocalSteps | None:
        """None: the gradient of one step leaves, not weights."""
        steps = (part.defence.local_steps(part.number) for part in self.parts if part.defence.local_steps)
        return next(steps, None)

    @property
    def jigsaw(self) -> Part | None:
        """The part that shuffles, if there is one."""
        return next((part for part in self.parts if part.defence.plan or part.defence.keyed_plan), None)

    @property
    def needs_key(self) -> bool:
        """Whether the client needs its secret key."""
        return any(part.defence.keyed_plan or part.defence.pictures for part in self.parts)

    @property
    def accuracy(self) -> Accuracy:
        """Which measured accuracy may stand beside the combination: none as soon as one part claims none."""
        claims = {part.defence.accuracy for part in self.parts} - {Accuracy.UNCHANGED}
        if not claims:
            return Accuracy.UNCHANGED
        return claims.pop() if len(claims) == 1 else Accuracy.NOT_CLAIMED

    def config(self, config: MJPConfig) -> MJPConfig:
        """How the shared model, whose own settings are `config`, is wrapped."""
        for part in self.parts:
            config = part.defence.config(config, part.number) if part.defence.config else config
        return config

    def draw_plan(
        self, images: Tensor, grid: tuple[int, int], generator: torch.Generator, key: SecretKey | None = None
    ) -> Plan | None:
        """The jigsaw of one step; None if nothing is shuffled."""
        part = self.jigsaw
        if part and part.defence.plan:
            return part.defence.plan(images, grid, part.number, generator)
        if part and part.defence.keyed_plan and key:
            return part.defence.keyed_plan(images, grid, part.number, key)
        return None

    def prepare(self, images: Tensor, std: Sequence[float], key: SecretKey | None = None) -> Tensor:
        """The normalised pictures as the network gets them."""
        for part in self.parts:
            if part.defence.pictures and key:
                images = part.defence.pictures(images, std, key)
        return images

    @property
    def gradients(self) -> Part | None:
        """The part that computes gradients in a way of its own, if there is one."""
        return next((part for part in self.parts if part.defence.gradients), None)

    @property
    def noise_multiplier(self) -> float | None:
        """Of DP-SGD; None without it."""
        noises = (part.defence.multiplier(part.number) for part in self.parts if part.defence.multiplier)
        return next(noises, None)

    @property
    def changes_numbers(self) -> bool:
        """Whether what leaves is not the bare gradient: noise, pruning, rounding, clipping picture by picture."""
        return any(part.defence.perturb or part.defence.gradients for part in self.parts)

    def trains(self, name: str) -> bool:
        return all(part.defence.trains(name) for part in self.parts if part.defence.trains)

    def sends(self, name: str) -> bool:
        return self.trains(name) and all(part.defence.sends(name) for part in self.parts if part.defence.sends)

    def perturb(self, tensors: dict[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
        """Noise, pruning, rounding: all that happens to the tensors that are about to leave."""
        for part in self.parts:
            tensors = part.defence.perturb(tensors, part.number, generator) if part.defence.perturb else tensors
        return tensors

    def check_installed(self) -> None:
        """Refuse, before long work begins, a defence whose package is missing."""
        for defence, _ in self.parts:
            if defence.package and find_spec(defence.package) is None:
                extra = f"pip install 'mjp[{defence.name}]'"
                raise InputError(f"the defence {defence.name} needs the package {defence.package}: {extra}")


def parse(text: str) -> Combination:
    """Read a combination such as `mjp:0.27+bf16`."""
    parts: list[Part] = []
    for word in text.split("+"):
        part = _read(word)
        if part.defence.exclusive and part.defence.exclusive in {other.defence.exclusive for other in parts}:
            raise InputError(
                f"defence {text!r} says the same thing twice: {word!r} repeats or contradicts another part"
            )
        parts.append(part)
    names = {part.defence.name for part in parts}
    for part in parts:
        for name, reason in part.defence.conflicts.items():
            if name in names:
                raise InputError(f"defence {text!r}: {reason}")
    return Combination(text, tuple(sorted(parts, key=lambda part: part.defence.order)))


def _read(word: str) -> Part:
    """One part, its number in its range."""
    name, _, value = word.strip().partition(":")
    if name not in defences():
        grammar = ", ".join(defence.grammar for defence in defences().values())
        raise InputError(f"unknown defence {shorten(word)}: choose from {grammar}, joined by +")
    defence = defences()[name]
    if defence.number is None:
        if value:
            raise InputError(f"defence {word!r}: {name} takes no number")
        return Part(defence, 0.0)
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not defence.number.allows(number):
        bounds = f"from {defence.number.low:g} to {defence.number.high:g}"
        raise InputError(
            f"defence {word!r}: write {name}:NUMBER with a {'whole ' if defence.number.whole else ''}number {bounds}"
        )
    return Part(defence, number)
