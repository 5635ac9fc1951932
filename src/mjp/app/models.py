"""The models of the page, and what they say about a picture under jigsaws."""

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple, cast

import torch
from timm.data import ImageNetInfo
from torch import Tensor

from mjp.common.errors import InputError
from mjp.method.config import SamplerName
from mjp.method.plan import Plan, sample_plan
from mjp.models import Subject, find_model
from mjp.pictures.tensors import normalise

Grid = tuple[int, int]

DRAWS = 50  # jigsaws over which consistency is counted; the first of them is the one that is shown
IMAGENET = 1000  # classes


class Answer(NamedTuple):
    """What a model takes a picture for."""

    label: str
    probability: float


class Models:
    """The models by name, all in memory; one forward pass at a time. The last one is attacked unless told otherwise."""

    def __init__(self, names: Sequence[str]) -> None:
        if not names:
            raise InputError("name at least one --model")
        self.subjects = {name: find_model(name) for name in dict.fromkeys(names)}
        self.lock = Lock()
        for subject in self.subjects.values():
            if subject.size[0] != subject.size[1]:
                raise InputError(f"the page is for square pictures, {subject.name} takes {subject.size}")
            subject.model.eval()

    def __getitem__(self, name: str) -> Subject:
        if name not in self.subjects:
            raise InputError(f"this page has no model {name[:80]!r}: choose from {', '.join(self.subjects)}")
        return self.subjects[name]

    @property
    def default(self) -> str:
        return list(self.subjects)[-1]

    def grid(self, name: str) -> Grid:
        return self[name].model.grid(torch.zeros(1, 3, *self[name].size))

    def answers(self, name: str, pixels: Tensor, plan: Plan | None) -> list[Answer]:
        """What the model says about (3, H, W) pixels in [0, 1], once for every jigsaw of the plan."""
        subject = self[name]
        images = normalise(pixels.unsqueeze(0), subject.mean, subject.std)
        with self.lock, torch.inference_mode():
            if plan is None:
                logits = subject.model(images)
            else:
                logits = subject.model(images.expand(len(plan.mask), -1, -1, -1), plan=plan).logits
        best = logits.softmax(1).max(1)
        return [
            Answer(class_name(subject, index), probability)
            for index, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


def class_name(subject: Subject, index: int) -> str:
    """The name of a class; ImageNet's are known, of others at least the number."""
    if subject.model.classes is not None:
        return subject.model.classes[index]
    if cast(Any, subject.model.model).num_classes == IMAGENET:
        return _imagenet().index_to_description(index).split(",")[0]
    return f"class {index}"


@lru_cache(maxsize=64)
def plans(grid: Grid, ratio: float, sampler: SamplerName, seed: int) -> Plan:
    """DRAWS jigsaws. A slider that goes back and forth finds them again."""
    return sample_plan(DRAWS, grid, ratio, generator=torch.Generator().manual_seed(seed), sampler=sampler)


def some(plan: Plan, first: int, count: int) -> Plan:
    """The plan of a few of its jigsaws."""
    rows = slice(first, first + count)
    return plan._replace(mask=plan.mask[rows], permutation=plan.permutation[rows], inverse=plan.inverse[rows])


@lru_cache(maxsize=1)
def _imagenet() -> Any:
    return ImageNetInfo()
