"""The jigsaws of a run, step by step: from its public seed, or from a client's secret key.

With a key, whoever has the settings, the log, the checkpoints and every update of a run still cannot draw its plans.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.secret_key import SecretKey
from mjp.common.seeds import PLAN, derive_seed
from mjp.method.model import MJP
from mjp.method.plan import Plan
from mjp.method.sticky import join_plans, sticky_plan, tensor_digests
from mjp.pictures.dither import dither
from mjp.training.config import TrainConfig
from mjp.training.order import rows_of

MAX_CACHED = 50_000  # plans of sticky jigsaws: 3 kB each on a 14×14 grid


def open_key(config: TrainConfig) -> SecretKey | None:
    """The key of the run; None if its jigsaws come from the seed."""
    if config.secret_key is None:
        return None
    path = config.secret_key.expanduser().absolute()
    if path.resolve().is_relative_to(config.folder.absolute().resolve()):
        raise InputError(f"the secret key {path} is in the folder of the run, which others may get: keep it elsewhere")
    return SecretKey.open(path)


class Jigsaws:
    """Draws the plan of every micro-batch, and the dither of its pictures."""

    def __init__(
        self, config: TrainConfig, model: MJP, key: SecretKey | None, *, step_size: int, std: Sequence[float]
    ) -> None:
        self.config, self.model, self.key, self.step_size, self.std = config, model, key, step_size, std
        self._step = -1
        self._plan: Any = None  # of the whole step
        self._sticky: dict[bytes, Plan] = {}

    @property
    def check_value(self) -> str | None:
        """By which a checkpoint tells whether it is continued with its own key."""
        return None if self.key is None else self.key.check_value

    def expect(self, check_value: str | None) -> None:
        """Refuse to continue a run that had another key, or none."""
        if check_value != self.check_value:
            raise InputError("the run was begun with another secret key, or with none: continue it with the same one")

    def draw(
        self,
        images: Tensor,
        digests: Tensor | None = None,
        *,
        step: int,
        ratio: float | None = None,
        share: int = 0,
        shares: int = 1,
    ) -> Plan:
        """The plan of one micro-batch (B, C, H, W); `digests` (B, 32) name its pictures if jigsaws are sticky.

        `ratio`: the mask ratio of this moment, by default the model's.
        """
        if digests is not None and self.key is not None:
            return self._of_pictures(images, [bytes(row) for row in digests.tolist()], self.key)
        if step != self._step:
            self._step = step
            self._plan = self._of_step(images, step, ratio)
        plan: Plan = rows_of(self._plan, share, shares)
        return plan

    def dithered(self, images: Tensor) -> Tensor:
        """The pictures with noise of one grey level that depends on the key and on the pictures."""
        if not self.config.dither or self.key is None:
            return images
        return dither(images, self.std, [self.key.generator("dither", name) for name in tensor_digests(images)])

    def _of_step(self, images: Tensor, step: int, ratio: float | None) -> Plan:
        """The plan of the whole step, all processes and micro-batches: each takes its rows."""
        whole = images[:1].expand(self.step_size, -1, -1, -1)  # only its shape is looked at
        if self.key is not None:
            return self.model.sample_plan(whole, self.key.generator("jigsaw", step), ratio=ratio).to(images.device)
        seed = derive_seed(self.config.seed, step, PLAN)
        return self.model.sample_plan(whole, torch.Generator(images.device).manual_seed(seed), ratio=ratio)

    def _of_pictures(self, images: Tensor, names: list[bytes], key: SecretKey) -> Plan:
        """The plans that stay with these pictures."""
        if len(self._sticky) > MAX_CACHED:
            self._sticky.clear()
        for name in set(names) - self._sticky.keys():
            self._sticky[name] = sticky_plan(partial(self.model.sample_plan, images[:1]), [name], key)
        return join_plans([self._sticky[name] for name in names]).to(images.device)
