"""The sweep over mask ratios, against a slow loop and on models whose answer is known."""

import mjp  # isort: skip  before timm: it makes torchvision importable

from typing import Any

import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from method.kinds import KINDS, hiding
from method.tiny import generator, half_masked, pictures, swin
from mjp.evaluation.batches import Batch
from mjp.evaluation.jigsaws import BLOCK, jigsaw
from mjp.evaluation.sweep import Point, Sweep, position_views, sweep
from mjp.method.shuffle import shuffle_image

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


def batches(count: int = 24, size: int = 8, order: list[int] | None = None) -> list[Batch]:
    source = torch.Generator().manual_seed(0)
    images = torch.randn(count, 3, 32, 32, generator=source)
    labels = torch.randint(10, (count,), generator=source)
    numbers = list(range(count)) if order is None else order
    groups = [numbers[start : start + size] for start in range(0, count, size)]
    return [Batch(images[group], labels[group], group) for group in groups]


def measure(subject: mjp.MJP, ratios: tuple[float, ...] = (0.5,), **changes: Any) -> Sweep:
    return sweep(subject, changes.pop("data", batches()), ratios, **{"draws": 1, "seed": 0, "device": CPU, **changes})


def at(result: Sweep, ratio: float, *, unknown: bool) -> Point:
    return next(p for p in result.points if p.ratio == ratio and p.unknown == unknown)


def test_nothing_masked_changes_nothing() -> None:
    point = at(measure(model("G"), (0.0,)), 0.0, unknown=True)
    assert point.metrics["consistency"].mean == 1
    assert point.metrics["diff_norm"].mean == point.metrics["diff_relative"].mean == 0


def test_clean_accuracy_is_that_of_the_timm_model() -> None:
    subject = model("G")
    with torch.no_grad():
        logits = torch.cat([subject.unwrap()(images) for images, _, _ in batches()])
    labels = torch.cat([labels for _, labels, _ in batches()])
    result = measure(subject)
    assert result.pictures == 24
    assert result.top1.mean == pytest.approx((logits.argmax(1) == labels).float().mean().item())
    in_five = (logits.topk(5, 1).indices == labels[:, None]).any(1)
    assert result.top5.mean == pytest.approx(in_five.float().mean().item())


def test_points_equal_a_slow_loop_over_the_same_plans() -> None:
    subject = model("G")
    point = at(measure(subject, (0.5,)), 0.5, unknown=True)
    same, shift = [], []
    for images, _, numbers in batches():
        for image, number in zip(images, numbers, strict=True):
            plan = jigsaw([number], (4, 4), 0.5, seed=0, draw=0)
            with torch.no_grad():
                clean = subject(image[None], mjp.identity_plan(1, (4, 4)))
                moved = subject(image[None], plan)
            same.append(float(clean.logits.argmax() == moved.logits.argmax()))
            shift.append((clean.features - moved.features).norm().item() / clean.features.norm().item())
    assert point.metrics["consistency"].mean == pytest.approx(sum(same) / len(same))
    assert point.metrics["diff_relative"].mean == pytest.approx(sum(shift) / len(shift), rel=1e-5)


def test_a_model_with_unknown_is_measured_with_and_without_it_and_a_plain_one_without() -> None:
    assert {p.unknown for p in measure(model("J")).points} == {True, False}
    assert {p.unknown for p in measure(model("A")).points} == {False}


def test_a_model_without_positions_is_perfectly_consistent() -> None:
    point = at(measure(model("B"), (1.0,), draws=3), 1.0, unknown=False)
    assert point.metrics["consistency"].mean == 1
    assert point.metrics["diff_relative"].mean < 1e-4


def test_positions_make_the_same_model_inconsistent() -> None:
    assert at(measure(model("A"), (1.0,), draws=3), 1.0, unknown=False).metrics["diff_relative"].mean > 0.05


def test_an_unreadable_picture_is_a_wrong_answer() -> None:
    images, _, numbers = batches()[0]
    result = measure(model("G"), data=[Batch(images, torch.full((len(images),), -1), numbers)])
    assert result.top1.mean == result.top5.mean == result.points[0].metrics["top1"].mean == 0
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


@pytest.mark.parametrize("size", [1, 7, 24])
def test_the_batch_size_does_not_matter(size: int) -> None:
    """The same jigsaws, hence the same answers, and the same pictures in every bootstrap replicate."""
    usual, other = (measure(model("J"), (0.3, 0.6), draws=2, data=batches(size=n)) for n in (8, size))
    for one, two in zip(usual.points, other.points, strict=True):
        assert one.metrics["consistency"] == two.metrics["consistency"]
        assert one.metrics["top1"] == two.metrics["top1"]
        assert one.metrics["diff_norm"] == pytest.approx(two.metrics["diff_norm"], rel=1e-4)
    assert (usual.top1, usual.top5) == (other.top1, other.top5)


def test_the_order_of_the_pictures_does_not_matter() -> None:
    forwards, backwards = (
        measure(model("J"), (0.6,), draws=2, data=batches(order=order))
        for order in (list(range(24)), list(range(23, -1, -1)))
    )
    for one, two in zip(forwards.points, backwards.points, strict=True):
        assert one.metrics["consistency"].mean == pytest.approx(two.metrics["consistency"].mean)
        assert one.metrics["diff_norm"].mean == pytest.approx(two.metrics["diff_norm"].mean, rel=1e-4)


@given(
    numbers=st.lists(st.integers(0, 10 * BLOCK), min_size=1, max_size=12),
    seed=st.integers(0, 3),
    draw=st.integers(0, 2),
)
def test_a_jigsaw_depends_on_seed_draw_and_number_alone(numbers: list[int], seed: int, draw: int) -> None:
    together = jigsaw(numbers, (4, 4), 0.5, seed=seed, draw=draw)
    for row, number in enumerate(numbers):
        alone = jigsaw([number], (4, 4), 0.5, seed=seed, draw=draw)
        assert torch.equal(together.mask[row], alone.mask[0])
        assert torch.equal(together.permutation[row], alone.permutation[0])
        assert torch.equal(together.inverse[row], alone.inverse[0])


def test_other_pictures_draws_and_seeds_get_other_jigsaws() -> None:
    plans = [
        jigsaw([number], (8, 8), 0.5, seed=seed, draw=draw).permutation
        for number in (0, 1, BLOCK)
        for seed in (0, 1)
        for draw in (0, 1)
    ]
    assert len({tuple(plan[0].tolist()) for plan in plans}) == len(plans)


@pytest.mark.parametrize("ratios", [(), (0.5,)])
def test_a_model_that_answers_with_nan_is_refused(ratios: tuple[float, ...]) -> None:
    """NaN equals nothing, so argmax over it would be the same class with and without a jigsaw: 100 % consistent."""
    broken = model("A")
    backbone: Any = broken.model
    with torch.no_grad():
        backbone.head.bias[0] = torch.nan
    with pytest.raises(mjp.InputError, match="NaN or infinity"):
        measure(broken, ratios)


def test_a_model_that_overflows_only_under_the_jigsaw_is_refused() -> None:
    subject = model("G")
    with torch.no_grad():
        assert subject.unknown is not None
        subject.unknown.fill_(torch.inf)
    with pytest.raises(mjp.InputError, match="NaN or infinity"):
        measure(subject)


def test_a_ratio_that_nobody_asked_for_is_not_complained_about(recwarn: pytest.WarningsRecorder) -> None:
    backbone = timm.create_model("deit_tiny_patch16_224", img_size=64, depth=1, embed_dim=24, num_heads=2)
    views = position_views(mjp.MJP(backbone, mjp.variant("J", ratio=0.5)))
    assert set(views) == {True, False}
    assert not [str(warning.message) for warning in recwarn if "no patch ever moves" in str(warning.message)]


def swin_with_table() -> mjp.MJP:
    subject = mjp.MJP(swin(), mjp.variant("J", ape=True, cell=8, ratio=0.5)).eval()
    assert subject.pos_embed is not None
    nn.init.normal_(subject.pos_embed, generator=generator())  # zero at first, as if there were none
    return subject


def learned_rotation() -> mjp.MJP:
    subject = hiding(KINDS["rotations"](), unknown_rotation="learned")
    assert subject.rotation is not None
    nn.init.normal_(subject.rotation, generator=generator())
    return subject


WITH_MORE = {"swin with table": swin_with_table, "learned rotation": learned_rotation}


@torch.no_grad()
@pytest.mark.parametrize("kind", [*WITH_MORE, *KINDS])
def test_the_view_that_keeps_positions_is_the_model_with_every_slot_at_its_own_position(kind: str) -> None:
    subject = WITH_MORE[kind]() if kind in WITH_MORE else hiding(KINDS[kind]())
    images, plan = pictures(), half_masked()
    views = position_views(subject)
    kept, nothing = views[False], mjp.identity_plan(4, (4, 4))
    assert torch.equal(kept(images, nothing).logits, subject(images, nothing).logits)
    moved = kept(images, plan).logits
    # without a plan the model sees a picture that comes shuffled as any other, and hides nothing
    torch.testing.assert_close(moved, subject(shuffle_image(images, plan, subject.adapter.cell)), rtol=1e-3, atol=1e-4)
    assert (moved - views[True](images, plan).logits).abs().max() > 1e-3  # the model itself still hides positions


def test_views_share_their_weights() -> None:
    subject = swin_with_table()
    kept = dict(position_views(subject)[False].named_parameters())
    assert kept["pos_embed"] is subject.pos_embed
    assert all(kept[f"model.{name}"] is parameter for name, parameter in subject.model.named_parameters())
