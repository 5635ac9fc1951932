"""Accuracy without a jigsaw, and every jigsaw metric for a sweep of mask ratios, in one pass over the pictures."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.common.stats import Bootstrap, Interval
from mjp.evaluation.batches import Batch
from mjp.evaluation.jigsaw_metrics import METRICS
from mjp.evaluation.jigsaws import jigsaw
from mjp.method.config import variant
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


@torch.no_grad()
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
    model = model.to(device).eval()
    views = position_views(model)
    settings = [(ratio, unknown) for ratio in ratios for unknown in views]
    collected = Bootstrap(2 + len(METRICS) * len(settings), seed=seed)
    undefined = torch.zeros((), dtype=torch.bool, device=device)
    for images, labels, numbers in batches:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        grid = model.grid(images)
        plain = model(images, identity_plan(len(images), grid, device=device))
        columns = [_accuracy(plain, labels)]
        for ratio, unknown in settings:
            plans = (jigsaw(numbers, grid, ratio, seed=seed, draw=draw).to(device) for draw in range(draws))
            rows = [_compare(plain, views[unknown](images, plan), labels) for plan in plans]
            columns.append(torch.stack(rows).mean(0))
        values = torch.cat(columns, 1)
        undefined |= ~(values.isfinite().all() & plain.logits.isfinite().all())
        collected.add(values)
    if undefined:  # looked at once, at the end: looking after every batch would wait for the device
        raise InputError("the model answers some pictures with NaN or infinity and cannot be evaluated")
    return _summary(collected, settings, draws, seed)


def position_views(model: MJP) -> dict[bool, nn.Module]:
    """The model with its positions kept, and if it has an E_unk, with that: both share their weights."""
    keeping = model if model.unknown is None else MJP(model.unwrap(), variant("E", cell=model.config.cell)).eval()
    return {False: keeping} if model.unknown is None else {True: model, False: keeping}


def _accuracy(plain: MJPOutput, labels: Tensor) -> Tensor:
    """(B, 2): right, and right among the first five."""
    best = plain.logits.topk(min(5, plain.logits.shape[1]), 1).indices
    hits = best == labels.unsqueeze(1)
    return torch.stack([hits[:, 0], hits.any(1)], 1).float()


def _compare(plain: MJPOutput, shuffled: MJPOutput, labels: Tensor) -> Tensor:
    """(B, metrics), NaN where the model gave no finite answer under the jigsaw."""
    values = torch.stack([metric(plain, shuffled, labels).float() for metric in METRICS.values()], 1)
    return values.masked_fill(~shuffled.logits.isfinite().all(1, keepdim=True), torch.nan)


def _summary(collected: Bootstrap, settings: list[tuple[float, bool]], draws: int, seed: int) -> Sweep:
    top1, top5, *intervals = collected.intervals()
    points = []
    for k, (ratio, unknown) in enumerate(settings):
        values = intervals[k * len(METRICS) : (k + 1) * len(METRICS)]
        points.append(Point(ratio, unknown, dict(zip(METRICS, values, strict=True))))
    return Sweep(top1, top5, points, collected.count, draws, seed)
