"""Accuracy, consistency and feature shift under the jigsaw, for a sweep of mask ratios, in one pass over the pictures.

consistency    share of pictures whose predicted class survives the jigsaw: argmax F(x) = argmax F(x̃)
diff_norm      ‖f(x) − f(x̃)‖₂, f = what the classifier sees; depends on the scale of the features
diff_relative  the same divided by ‖f(x)‖₂, comparable between models
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mjp.common.stats import Bootstrap, Interval
from mjp.method.config import variant
from mjp.method.model import MJP
from mjp.method.plan import identity_plan, sample_plan

QUANTITIES = ("top1", "consistency", "diff_norm", "diff_relative")


@dataclass(frozen=True)
class Point:
    """Everything measured at one mask ratio, with or without E_unk at the masked slots."""

    ratio: float
    unknown: bool
    top1: Interval
    consistency: Interval
    diff_norm: Interval
    diff_relative: Interval


@dataclass(frozen=True)
class Sweep:
    top1: Interval
    top5: Interval
    points: list[Point]
    pictures: int
    draws: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@torch.no_grad()
def sweep(
    model: MJP,
    batches: Iterable[tuple[Tensor, Tensor]],
    ratios: Iterable[float],
    *,
    draws: int,
    seed: int,
    device: torch.device,
) -> Sweep:
    """Measure a model on (images, labels) batches; a label below 0 (an unreadable picture) is a wrong answer."""
    model = model.to(device).eval()
    views = position_views(model)
    settings = [(ratio, name) for ratio in ratios for name in views]
    collected = Bootstrap(2 + len(QUANTITIES) * len(settings), seed=seed)
    generator = torch.Generator(device).manual_seed(seed)
    for images, labels in batches:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        grid = model.grid(images)
        plain = model(images, identity_plan(len(images), grid, device=device))
        best = plain.logits.topk(min(5, plain.logits.shape[1]), 1).indices
        hits = best == labels.unsqueeze(1)
        columns = [torch.stack([hits[:, 0], hits.any(1)], 1).float()]
        for ratio, name in settings:
            rows = []
            for _ in range(draws):
                plan = sample_plan(len(images), grid, ratio, generator=generator)
                rows.append(_compare(plain, views[name](images, plan), labels))
            columns.append(torch.stack(rows).mean(0))
        collected.add(torch.cat(columns, 1))
    return _summary(collected, settings, draws, seed)


def position_views(model: MJP) -> dict[bool, nn.Module]:
    """The model with its positions kept, and if it has an E_unk, with that: both share their weights."""
    keeping = model if model.unknown is None else MJP(model.unwrap(), variant("E", cell=model.config.cell)).eval()
    return {False: keeping} if model.unknown is None else {True: model, False: keeping}


def _compare(plain: Any, other: Any, labels: Tensor) -> Tensor:
    """(B, 4): right, same class as before, distance of the features, relative distance."""
    chosen = other.logits.argmax(1)
    distance = (plain.features - other.features).norm(dim=1)
    size = plain.features.norm(dim=1).clamp(min=1e-12)
    same = chosen == plain.logits.argmax(1)
    return torch.stack([chosen == labels, same, distance, distance / size], 1).float()


def _summary(collected: Bootstrap, settings: list[tuple[float, bool]], draws: int, seed: int) -> Sweep:
    top1, top5, *found = collected.intervals()
    points = []
    for k, (ratio, unknown) in enumerate(settings):
        values = dict(zip(QUANTITIES, found[k * len(QUANTITIES) : (k + 1) * len(QUANTITIES)], strict=True))
        points.append(Point(ratio, unknown, **values))
    return Sweep(top1, top5, points, collected.count, draws, seed)
