"""What is estimated from several runs is estimated from those that are alike."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mjp.reproduce.collect import difference
from mjp.reproduce.outcomes import pack
from mjp.reproduce.scale import Run
from mjp.reproduce.scale_file import load_scale

PICTURES = 500


def cell(accuracy: float, seed: int) -> dict[str, Any]:
    """A cell in which every picture is right with this probability."""
    right = np.random.default_rng(seed).random(PICTURES) < accuracy
    return {"outcomes": {"right": pack(torch.from_numpy(right)), "pictures": PICTURES, "points": []}, "figures": {}}


def test_a_run_of_another_family_does_not_widen_the_interval() -> None:
    toy = load_scale("toy")
    claim = replace(toy.claims[0], quantity="top1", of="J", than="A")
    cells = {run: {seed: cell(0.7, 10 * number + seed) for seed in range(3)} for number, run in enumerate("AJ")}
    alone = difference(toy, cells, claim)
    wild = {seed: cell(accuracy, 90 + seed) for seed, accuracy in enumerate((0.1, 0.9, 0.5))}
    widths = {}
    for family in ("main", "other"):
        scale = replace(toy, runs={**toy.runs, "wild": Run("wild", "wild", {}, family=family)})
        result = difference(scale, {**cells, "wild": wild}, claim)
        assert result is not None
        widths[family] = result.high - result.low
    assert alone is not None
    assert widths["other"] == alone.high - alone.low
    assert widths["main"] > widths["other"]
