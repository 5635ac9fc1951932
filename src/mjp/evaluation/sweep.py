"""Accuracy without a jigsaw, and every jigsaw metric for a sweep of mask ratios, in one pass over the pictures."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.common.stats import Bootstrap, Interval
from mjp.evaluation.batches import Batch
from mjp.evaluation.jigsaw_metrics import METRICS
from mjp.evaluation.jigsaws import jigsaw
from mjp.method.config import SamplerName
from mjp.method.model import MJP, MJPOutput
from mjp.method.plan import identity_plan


@dataclass(frozen=True)
class Point:
    """Everything measured at one mask ratio, with or without E_unk at the masked slots."""

    ratio: float
    unknown: bool
    metrics: dict[str, Interval]

    def to_dict(self) -> dict[str, Any]:
        return {"ratio": self.ratio, "unknown": self.unknown, **self.metrics}


@dataclass(frozen=True)
class Sweep:
    top1: Interval
    top5: Interval
    points: list[Point]
    pictures: int
    draws: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "points": [point.to_dict() for point in self.points]}


class Setting(NamedTuple):
    """One way to shuffle: a mask ratio, with or without E_unk at the masked slots, and how masks are drawn."""

    ratio: float
    unknown: bool
    sampler: SamplerName = "blockwise"


def sweep(
    model: MJP,
    batches: Iterable[Batch],
    ratios: Iterable[float],
    *,
    draws: int,
    seed: int,
    device: torch.device,
) -> Sweep:
    """Measure a model; a label below 0 (an unreadable picture) is a wrong answer."""
    settings = sweep_settings(model, ratios)
    collected = Bootstrap(2 + len(METRICS) * len(settings), seed=seed)
    for values in picture_outcomes(model, batches, settings, draws=draws, seed=seed, device=device):
        collected.add(values)
    return _summary(collected, settings, draws, seed)


def sweep_settings(model: MJP, ratios: Iterable[float], sampler: SamplerName = "blockwise") -> list[Setting]:
    """Every ratio with positions kept, and with E_unk if the model has one."""
    return [Setting(ratio, unknown, sampler) for ratio in ratios for unknown in position_views(model)]


@torch.no_grad()
def picture_outcomes(
    model: MJP,
    batches: Iterable[Batch],
    settings: Sequence[Setting],
    *,
    draws: int,
    seed: int,
    device: torch.device,
) -> Iterator[Tensor]:
    """(B, 2 + settings × metrics) for every batch: top-1 and top-5 without a jigsaw, then the metrics by setting."""
    model = model.to(device).eval()
    views = position_views(model)
    undefined = torch.zeros((), dtype=torch.bool, device=device)
    for images, labels, numbers in batches:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        grid = model.grid(images)
        plain = model(images, identity_plan(len(images), grid, device=device))
        columns = [_accuracy(plain, labels)]
        for ratio, unknown, sampler in settings:
            drawn = (jigsaw(numbers, grid, ratio, seed=seed, draw=draw, sampler=sampler) for draw in range(draws))
            rows = [_compare(plain, views[unknown](images, plan.to(device)), labels) for plan in drawn]
            columns.append(torch.stack(rows).mean(0))
        values = torch.cat(columns, 1)
        undefined |= ~(values.isfinite().all() & plain.logits.isfinite().all())
        yield values
    if undefined:  # looked at once, at the end: looking after every batch would wait for the device
        raise InputError("the model answers some pictures with NaN or infinity and cannot be evaluated")


def position_views(model: MJP) -> dict[bool, nn.Module]:
    """The model with its positions kept, and if it can hide them, with that: both share their weights."""
    if not model.hides_positions:
        return {False: model}
    keeping = copy(model)  # shallow; of the wrapper, since a Swin's absolute table is not part of the timm model
    # a learned rotation is for hidden patches, and the configuration refuses it without them
    keeping.config = replace(model.config, position="keep", unknown_rotation="identity")
    return {True: model, False: keeping.eval()}


def _accuracy(plain: MJPOutput, labels: Tensor) -> Tensor:
    """(B, 2): right, and right among the first five."""
    best = plain.logits.topk(min(5, plain.logits.shape[1]), 1).indices
    hits = best == labels.unsqueeze(1)
    return torch.stack([hits[:, 0], hits.any(1)], 1).float()


def _compare(plain: MJPOutput, shuffled: MJPOutput, labels: Tensor) -> Tensor:
    """(B, metrics), NaN where the model gave no finite answer under the jigsaw."""
    values = torch.stack([metric(plain, shuffled, labels).float() for metric in METRICS.values()], 1)
    return values.masked_fill(~shuffled.logits.isfinite().all(1, keepdim=True), torch.nan)


def _summary(collected: Bootstrap, settings: Sequence[Setting], draws: int, seed: int) -> Sweep:
    top1, top5, *intervals = collected.intervals()
    points = []
    for k, (ratio, unknown, _) in enumerate(settings):
        values = intervals[k * len(METRICS) : (k + 1) * len(METRICS)]
        points.append(Point(ratio, unknown, dict(zip(METRICS, values, strict=True))))
    return Sweep(top1, top5, points, collected.count, draws, seed)
