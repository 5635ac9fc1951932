"""One gradient per image equals a loop over single images."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, nll_loss

import mjp
from method.tiny import half_masked, pictures, relative_difference, swin, vit
from mjp.method.config import VARIANTS

LABELS = torch.tensor([1, 7, 3, 0])


def one_by_one(model: mjp.MJP, images: Tensor, plan: mjp.Plan) -> dict[str, Tensor]:
    """The oracle: forward and backward of every image alone."""
    rows: dict[str, list[Tensor]] = {}
    for i in range(len(images)):
        pixels = None if plan.pixels is None else plan.pixels[i : i + 1]
        mask, permutation, inverse = (tensor[i : i + 1] for tensor in plan[:3])
        own = mjp.Plan(mask, permutation, inverse, plan.grid, plan.budget, pixels)
        model.zero_grad()
        out = model(images[i : i + 1], own)
        (cross_entropy(out.logits, LABELS[i : i + 1]) + model.config.localize_weight * out.dal).backward()
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None
                rows.setdefault(name, []).append(parameter.grad.clone())
    return {name: torch.stack(gradients) for name, gradients in rows.items()}


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_a_loop_over_single_images(name: str) -> None:
    model = mjp.MJP(vit(), mjp.variant(name, ratio=0.5, localize_weight=0.3)).double()
    images = pictures().double()
    plan = model.sample_plan(images)
    expected = one_by_one(model, images, plan)
    found = mjp.per_sample_gradients(model, images, LABELS, plan)
    assert found.keys() == expected.keys()
    assert relative_difference(found.values(), [expected[name] for name in found]) < 1e-10


def test_swin_with_ape_equals_a_loop_over_single_images() -> None:
    model = mjp.MJP(swin(), mjp.preset("private", ape=True, cell=8)).double()
    images, plan = pictures().double(), half_masked()
    expected = one_by_one(model, images, plan)
    found = mjp.per_sample_gradients(model, images, LABELS, plan)
    assert relative_difference(found.values(), [expected[name] for name in found]) < 1e-10


def test_localization_is_part_of_the_gradient() -> None:
    model = mjp.MJP(vit(), mjp.variant("J", localize_weight=1.0)).double()
    found = mjp.per_sample_gradients(model, pictures().double(), LABELS, half_masked())
    assert (found["localizer.head.2.weight"] != 0).any((1, 2)).all()


def test_mean_over_images_is_the_batch_gradient() -> None:
    model = mjp.MJP(vit(), mjp.variant("G")).double()
    images, plan = pictures().double(), half_masked()
    found = mjp.per_sample_gradients(model, images, LABELS, plan)
    cross_entropy(model(images, plan).logits, LABELS).backward()
    expected = [model.get_parameter(name).grad for name in found]
    batch = [gradient for gradient in expected if gradient is not None]
    assert relative_difference([gradient.mean(0) for gradient in found.values()], batch) < 1e-10


def test_chunks_change_nothing() -> None:
    model = mjp.MJP(vit(), "private").double()
    images, plan = pictures().double(), half_masked()
    whole = mjp.per_sample_gradients(model, images, LABELS, plan)
    parts = mjp.per_sample_gradients(model, images, LABELS, plan, chunk_size=3)
    assert relative_difference(parts.values(), whole.values()) < 1e-10


def test_draws_a_plan_as_training_does() -> None:
    one, other = (mjp.MJP(vit(), mjp.variant("J", ratio=0.5)).double() for _ in range(2))
    other.load_state_dict(one.state_dict())
    images = pictures().double()
    found = mjp.per_sample_gradients(one, images, LABELS)
    expected = mjp.per_sample_gradients(other, images, LABELS, other.sample_plan(images))
    assert relative_difference(found.values(), expected.values()) < 1e-10


def test_any_loss_may_be_used() -> None:
    model = mjp.MJP(vit(), mjp.variant("G")).double()
    images, plan = pictures().double(), half_masked()

    def same_loss(logits: Tensor, labels: Tensor) -> Tensor:
        return nll_loss(logits.log_softmax(-1), labels)

    expected = mjp.per_sample_gradients(model, images, LABELS, plan)
    found = mjp.per_sample_gradients(model, images, LABELS, plan, loss=same_loss)
    assert relative_difference(found.values(), expected.values()) < 1e-10


def test_leaves_the_parameters_alone() -> None:
    model = mjp.MJP(vit(), "private")
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    mjp.per_sample_gradients(model, pictures(), LABELS)
    assert all(p.grad is None and torch.equal(p, before[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize(("plan", "names"), [(half_masked(3), "batch"), (half_masked(4, (2, 8)), "grid")])
def test_a_plan_for_other_images_is_refused(plan: Any, names: str) -> None:
    with pytest.raises(mjp.InputError, match=names):
        mjp.per_sample_gradients(mjp.MJP(vit(), "private"), pictures(), LABELS, plan)
