"""Outcomes are taken from the metrics by name: a further metric changes none of them."""

from typing import Any

import pytest
import torch
from torch import Tensor

import mjp
from mjp.evaluation import jigsaw_metrics
from mjp.evaluation.batches import Batch
from mjp.method.config import SamplerName
from mjp.method.model import MJPOutput
from mjp.reproduce.outcomes import measure_outcomes

import timm  # isort: skip  mjp before timm


def constant(_: MJPOutput, __: MJPOutput, labels: Tensor) -> Tensor:
    return torch.ones_like(labels)


@pytest.mark.parametrize("kept", [True, False])
def test_a_model_is_judged_as_it_treats_masked_slots_and_as_if_nobody_knew_them(kept: bool) -> None:
    model, batches = network_and_batches()
    samplers: list[SamplerName] = ["blockwise", "uniform"]
    cpu = torch.device("cpu")
    outcomes = measure_outcomes(model, batches, [0.5, 1.0], samplers=samplers, device=cpu, kept=kept)
    settings = [(point["ratio"], point["unknown"], point["sampler"]) for point in outcomes["points"]]
    expected = [(0.5, True, "blockwise"), (1.0, True, "blockwise"), (0.5, True, "uniform")]
    if kept:
        expected += [(ratio, False, sampler) for ratio, _, sampler in expected]
    assert sorted(settings) == sorted(expected)


def network_and_batches() -> tuple[mjp.MJP, list[Batch]]:
    shape: dict[str, Any] = {
        "img_size": 32,
        "patch_size": 8,
        "embed_dim": 24,
        "depth": 1,
        "num_heads": 2,
        "num_classes": 4,
    }
    model = mjp.MJP(timm.create_model("deit_tiny_patch16_224", **shape), mjp.variant("J", ratio=0.5))
    images = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return model, [Batch(images, torch.arange(6) % 4, list(range(6)))]


def test_a_further_metric_changes_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batches = network_and_batches()
    expected = measure_outcomes(model, batches, [0.3, 0.5], samplers=["blockwise"], device=torch.device("cpu"))
    monkeypatch.setitem(jigsaw_metrics.METRICS, "constant", constant)
    assert measure_outcomes(model, batches, [0.3, 0.5], samplers=["blockwise"], device=torch.device("cpu")) == expected
