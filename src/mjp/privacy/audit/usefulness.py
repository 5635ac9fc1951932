"""Accuracy and consistency of a model, and beside which defences they may be printed."""

from collections.abc import Sequence
from typing import Any

import torch

from mjp.common.distributed import World
from mjp.common.errors import InputError
from mjp.evaluation.batches import batches
from mjp.evaluation.sweep import sweep
from mjp.models import Subject
from mjp.pictures.sets import Pictures
from mjp.privacy.combination import parse
from mjp.privacy.defence import Accuracy
from mjp.training.evaluate import Unreadable


def measure(subject: Subject, source: Pictures, defences: Sequence[str], *, limit: int, seed: int) -> dict[str, Any]:
    """Plain, and under the jigsaws of the defences; empty where the classes of the pictures are not the model's."""
    try:
        subject.check_classes(source.classes)
    except InputError:
        return {}
    device = torch.device("cpu")
    jigsaws = [part for part in (parse(text).jigsaw for text in defences) if part]
    ratios = sorted({part.number for part in jigsaws})
    unreadable = Unreadable(0, World(0, 1, device))
    stream = batches(subject, source, size=128, limit=limit, workers=0, unreadable=unreadable)
    return sweep(subject.model.float(), stream, ratios, draws=1, seed=seed, device=device).to_dict()


def usefulness(text: str, measured: dict[str, Any]) -> dict[str, Any] | None:
    """{"top1": interval, "consistency": interval} of the model as a defence uses it; None where that is not known.

    The defence itself says what may be claimed. What noise, rounding or local steps cost in training was not measured:
    the accuracy of a model that was trained without them would suggest protection for free.
    """
    defence = parse(text)
    if not measured or defence.accuracy is Accuracy.NOT_CLAIMED:
        return None
    if defence.jigsaw is None:
        return {"top1": measured["top1"], "consistency": (1.0, 1.0, 1.0)}
    place = (defence.jigsaw.number, defence.accuracy is Accuracy.MASKED_JIGSAW)
    points = (point for point in measured["points"] if (point["ratio"], point["unknown"]) == place)
    return next(({name: point[name] for name in ("top1", "consistency")} for point in points), None)
