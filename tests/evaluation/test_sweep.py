"""The sweep over mask ratios, against a slow loop and on models whose answer is known."""

import mjp  # isort: skip  before timm: it makes torchvision importable

from typing import Any

import pytest
import timm
import torch
from torch import Tensor

from mjp.evaluation.sweep import Point, Sweep, sweep

CPU = torch.device("cpu")


def model(name: str, **changes: Any) -> mjp.MJP:
    torch.manual_seed(0)
    size: dict[str, Any] = {
        "img_size": 32,
        "patch_size": 8,
        "depth": 2,
        "embed_dim": 48,
        "num_heads": 3,
        "num_classes": 10,
    }
    vit = timm.create_model("deit_tiny_patch16_224", **size)
    with torch.no_grad():
        for parameter in vit.parameters():  # so that positions matter without training
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return mjp.MJP(vit, mjp.variant(name, **changes)).eval()  # variant B erases its positions again


def batches(count: int = 24, size: int = 8) -> list[tuple[Tensor, Tensor]]:
    source = torch.Generator().manual_seed(0)
    images = torch.randn(count, 3, 32, 32, generator=source)
    labels = torch.randint(10, (count,), generator=source)
    return list(zip(images.split(size), labels.split(size), strict=True))


def measure(subject: mjp.MJP, ratios: tuple[float, ...] = (0.5,), **changes: Any) -> Sweep:
    return sweep(subject, changes.pop("data", batches()), ratios, **{"draws": 1, "seed": 0, "device": CPU, **changes})


def at(result: Sweep, ratio: float, *, unknown: bool) -> Point:
    return next(p for p in result.points if p.ratio == ratio and p.unknown == unknown)


def test_nothing_masked_changes_nothing() -> None:
    point = at(measure(model("G"), (0.0,)), 0.0, unknown=True)
    assert point.consistency.mean == 1
    assert point.diff_norm.mean == point.diff_relative.mean == 0


def test_clean_accuracy_is_that_of_the_timm_model() -> None:
    subject = model("G")
    with torch.no_grad():
        logits = torch.cat([subject.unwrap()(images) for images, _ in batches()])
    labels = torch.cat([labels for _, labels in batches()])
    result = measure(subject)
    assert result.pictures == 24
    assert result.top1.mean == pytest.approx((logits.argmax(1) == labels).float().mean().item())
    in_five = (logits.topk(5, 1).indices == labels[:, None]).any(1)
    assert result.top5.mean == pytest.approx(in_five.float().mean().item())


def test_points_equal_a_slow_loop_over_the_same_plans() -> None:
    subject = model("G")
    point = at(measure(subject, (0.5,)), 0.5, unknown=True)
    draws, same, shift = torch.Generator().manual_seed(0), [], []
    for images, _ in batches():
        plans = [
            mjp.sample_plan(len(images), (4, 4), 0.5, generator=draws) for _ in range(2)
        ]  # with E_unk, then without
        with torch.no_grad():
            clean = subject(images, mjp.identity_plan(len(images), (4, 4)))
            moved = subject(images, plans[0])
        for i in range(len(images)):
            same.append(float(clean.logits[i].argmax() == moved.logits[i].argmax()))
            shift.append((clean.features[i] - moved.features[i]).norm().item() / clean.features[i].norm().item())
    assert point.consistency.mean == pytest.approx(sum(same) / len(same))
    assert point.diff_relative.mean == pytest.approx(sum(shift) / len(shift), rel=1e-5)


def test_a_model_with_unknown_is_measured_with_and_without_it_and_a_plain_one_without() -> None:
    assert {p.unknown for p in measure(model("J")).points} == {True, False}
    assert {p.unknown for p in measure(model("A")).points} == {False}


def test_a_model_without_positions_is_perfectly_consistent() -> None:
    point = at(measure(model("B"), (1.0,), draws=3), 1.0, unknown=False)
    assert point.consistency.mean == 1
    assert point.diff_relative.mean < 1e-4


def test_positions_make_the_same_model_inconsistent() -> None:
    assert at(measure(model("A"), (1.0,), draws=3), 1.0, unknown=False).diff_relative.mean > 0.05


def test_an_unreadable_picture_is_a_wrong_answer() -> None:
    images, _ = batches()[0]
    result = measure(model("G"), data=[(images, torch.full((len(images),), -1))])
    assert result.top1.mean == result.top5.mean == result.points[0].top1.mean == 0
    assert result.pictures == len(images)


def test_one_seed_one_result() -> None:
    assert measure(model("J"), (0.3, 0.6), draws=2) == measure(model("J"), (0.3, 0.6), draws=2)


def test_one_forward_pass_per_draw_and_one_for_the_clean_picture() -> None:
    subject = model("A")
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    cast_model: Any = subject.model
    cast_model.patch_embed.register_forward_hook(count)
    measure(subject, (0.1, 0.5, 0.9), draws=2)
    assert calls == len(batches()) * (1 + 3 * 2)
