"""What happened to every picture, kept small: bits for right and unchanged answers, so that runs can be compared
picture by picture long after their models are gone.

    {"right": bits, "pictures": 5000, "points": [{"ratio": .5, "unknown": true, "sampler": "blockwise", "pictures": 500,
     "right": bits, "same": bits, "diff_norm": 8.9, "diff_relative": .3}, ...]}
"""

import base64
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mjp.evaluation.batches import Batch
from mjp.evaluation.jigsaw_metrics import METRICS
from mjp.evaluation.sweep import Setting, picture_outcomes, sweep_settings
from mjp.method.config import SamplerName
from mjp.method.model import MJP


def measure_outcomes(
    model: MJP,
    batches: Iterable[Batch],
    ratios: Iterable[float],
    *,
    samplers: Iterable[SamplerName],
    device: torch.device,
    kept: bool = True,
) -> dict[str, Any]:
    """Every picture without a jigsaw and under one jigsaw for each ratio and sampler.

    Masked slots are treated as the model does it and, with `kept`, also as if nobody knew which they are: every slot
    keeps its position.
    """
    settings = [
        setting
        for sampler in samplers
        for setting in sweep_settings(model, ratios, sampler=sampler)
        if kept or setting.unknown == model.hides_positions
        if sampler == "blockwise" or setting.ratio < 1  # the full jigsaw has one mask, whoever draws it
    ]
    rows = torch.cat(list(picture_outcomes(model, batches, settings, draws=1, seed=0, device=device))).cpu()
    columns = rows[:, 2:].split(len(METRICS), 1)  # the metrics of each setting
    points = [_point(*pair) for pair in zip(settings, columns, strict=True)]
    return {"right": pack(rows[:, 0] > 0), "pictures": len(rows), "points": points}


def _point(setting: Setting, columns: Tensor) -> dict[str, Any]:
    """The columns are the METRICS of every picture."""
    values = dict(zip(METRICS, columns.T, strict=True))
    means = {name: values[name].mean().item() for name in ("diff_norm", "diff_relative")}
    bits = {"right": pack(values["top1"] > 0), "same": pack(values["consistency"] > 0)}
    return {**setting._asdict(), "pictures": len(columns), **bits, **means}


def pack(bits: Tensor) -> str:
    """Booleans as text."""
    return base64.b64encode(np.packbits(bits.numpy()).tobytes()).decode()


def unpack(text: str, count: int) -> NDArray[np.bool_]:
    """The first `count` booleans of a text."""
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=count).astype(bool)
