"""The parts of a run are what the recipe says."""

from pathlib import Path
from typing import Any

import pytest
import torch

from mjp.common.errors import InputError
from mjp.training.build import build_mixup, build_model, build_optimizer, build_schedule, localize_weight, mask_ratio
from mjp.training.config import TrainConfig
from training.runs import TINY_VIT, settings


def config(**changes: Any) -> TrainConfig:
    return settings(Path("nowhere"), Path("nowhere"), **changes)


def test_the_model_has_the_size_classes_and_rates_of_the_recipe() -> None:
    model: Any = build_model(config(drop=0.2), 7).model
    assert model.patch_embed.grid_size == (2, 2)
    assert model.num_classes == 7
    assert model.head_drop.p == 0.2


def test_stochastic_depth_is_that_of_the_recipe() -> None:
    model: Any = build_model(config(drop_path=0.3, model_kwargs=[*TINY_VIT[:2], "depth=2", "num_heads=2"]), 7).model
    assert model.blocks[-1].drop_path1.drop_prob == pytest.approx(0.3)


def test_model_arguments_may_be_numbers_and_words() -> None:
    kwargs = ["patch_size=8", "embed_dim=24", "depth=1", "num_heads=2", "global_pool=avg", "class_token=False"]
    model: Any = build_model(config(model_kwargs=kwargs), 2).model
    assert model.global_pool == "avg"
    assert model.cls_token is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "deit_tiny_patch61_224"}, "timm has no model 'deit_tiny_patch61_224'"),
        ({"model_kwargs": ["depth"]}, "takes name=value, not 'depth'"),
        ({"model_kwargs": ["depht=1"]}, "timm cannot create deit_tiny_patch16_224"),
        ({"model_kwargs": ["embed_dim=25", "num_heads=2"]}, "timm cannot create deit_tiny_patch16_224"),
    ],
)
def test_a_model_that_timm_cannot_make_is_bad_input(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_model(config(**changes), 2)


def test_a_preset_means_as_far_as_the_model_can_carry_it() -> None:
    with pytest.warns(UserWarning, match="only the jigsaw is left"):
        method = build_model(config(model="test_resnet", model_kwargs=[], input_size=32), 2).config
    assert (method.shuffle, method.position, method.localize) == ("jigsaw", "keep", "none")


def test_a_variant_that_the_model_cannot_carry_is_bad_input() -> None:
    with pytest.raises(InputError, match="position"):
        build_model(config(model="test_resnet", model_kwargs=[], input_size=32, preset="J"), 2)


def test_weight_decay_spares_biases_norms_positions_and_class_token() -> None:
    model = build_model(config(), 2)
    optimizer = build_optimizer(config(weight_decay=0.05), model, 8)
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] == 0.05 for p in group["params"]}
    spared = {id(p) for group in optimizer.param_groups if group["weight_decay"] == 0 for p in group["params"]}
    assert decayed | spared == {id(p) for p in model.parameters()}
    for name, p in model.named_parameters():
        free = name.endswith(("bias", "pos_embed", "cls_token", "unknown")) or ".norm" in name
        assert (id(p) in spared) == free, name


def test_positions_as_in_the_authors_code_start_at_one_and_decay() -> None:
    settings = config(reference_positions=True, weight_decay=0.05, model_kwargs=[*TINY_VIT[:1], "embed_dim=192"])
    model = build_model(settings, 2)
    optimizer = build_optimizer(settings, model, 8)
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] == 0.05 for p in group["params"]}
    parameters = dict(model.named_parameters())
    for name in ("model.pos_embed", "unknown"):
        assert parameters[name].std().item() == pytest.approx(1, abs=0.2)
        assert id(parameters[name]) in decayed
    assert not {id(parameters[name]) for name in ("model.cls_token", "model.norm.weight")} & decayed
    assert torch.equal(parameters["unknown"], build_model(settings, 2).get_parameter("unknown"))  # seeded


@pytest.mark.parametrize("changes", [{"preset": "B"}, {"model": "test_resnet", "model_kwargs": [], "preset": "E"}])
def test_positions_that_are_not_there_cannot_be_treated(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="--reference-positions is about absolute position embeddings"):
        build_model(config(reference_positions=True, **changes), 2)


def test_the_optimizer_is_the_one_of_the_recipe() -> None:
    optimizer = build_optimizer(config(lr=5e-4, opt_eps=1e-7, opt_betas=[0.8, 0.9]), build_model(config(), 2), 1024)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.defaults["lr"] == pytest.approx(1e-3)  # per 512 pictures
    assert optimizer.defaults["eps"] == 1e-7
    assert tuple(optimizer.defaults["betas"]) == (0.8, 0.9)


def test_sgd_takes_its_momentum() -> None:
    sgd = config(opt="sgd", opt_eps=None, opt_betas=None, momentum=0.7)
    assert build_optimizer(sgd, build_model(sgd, 2), 512).defaults["momentum"] == 0.7


def test_an_optimizer_that_timm_cannot_make_is_bad_input() -> None:
    with pytest.raises(InputError, match="timm cannot create the optimizer 'adamv'"):
        build_optimizer(config(opt="adamv"), build_model(config(), 2), 8)


def learning_rates(steps: list[int], **changes: Any) -> list[float]:
    chosen = config(lr=1e-3, epochs=10, warmup_epochs=2, warmup_lr=1e-6, min_lr=1e-5, **changes)
    optimizer = build_optimizer(chosen, build_model(chosen, 2), 512)
    schedule = build_schedule(chosen, optimizer, steps_per_epoch=100)
    rates = []
    for step in steps:
        schedule.step_update(step)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def test_the_learning_rate_warms_up_and_falls_as_a_cosine() -> None:
    start, half, peak, middle, end = learning_rates([0, 100, 200, 600, 1000])
    assert start == pytest.approx(1e-6)
    assert half == pytest.approx((1e-6 + 1e-3) / 2)
    assert peak == pytest.approx(1e-3, rel=0.11)  # timm's cosine has begun below the warm-up
    assert 3e-4 < middle < 6e-4
    assert end == pytest.approx(1e-5, rel=0.1)


def test_the_learning_rate_is_a_function_of_the_step_alone() -> None:
    assert learning_rates([0, 1, 2, 350, 351])[-1] == learning_rates([351])[0]


def test_an_unknown_schedule_is_bad_input() -> None:
    with pytest.raises(InputError, match="schedule"):
        learning_rates([0], sched="cosin")


@pytest.mark.parametrize("epoch", [0, 3.5, 10])
def test_a_constant_weight_of_the_localization_loss(epoch: float) -> None:
    assert localize_weight(config(mjp={"localize_weight": 0.02}), epoch) == 0.02


def test_the_authors_weight_warms_up_and_falls_to_a_half() -> None:
    chosen = config(epochs=10, warmup_epochs=2, localize_schedule="reference", mjp={"localize_weight": 0.04})
    moments = {0: 0, 0.5: 0.01, 1: 0.02, 2: 0.04, 6: 0.03, 10: 0.02}
    assert {moment: localize_weight(chosen, moment) for moment in moments} == pytest.approx(moments)


def test_the_authors_weight_without_warm_up_starts_at_its_largest() -> None:
    chosen = config(warmup_epochs=0, localize_schedule="reference", mjp={"localize_weight": 0.04})
    assert localize_weight(chosen, 0) == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("schedule", "ratios"),
    [("constant", [0.4, 0.4, 0.4, 0.4]), ("rise", [0, 0.2, 0.4, 0.4]), ("fall", [0.4, 0.4, 0.4, 0])],
)
def test_the_mask_ratio_over_time(schedule: str, ratios: list[float]) -> None:
    chosen = config(epochs=8, ratio_schedule=schedule, mjp={"ratio": 0.4})
    assert [mask_ratio(chosen, epoch) for epoch in (0, 2, 4, 8)] == pytest.approx(ratios)


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0)])
def test_mixup_and_cutmix_are_those_of_the_recipe(mixup: float, cutmix: float) -> None:
    mixing = build_mixup(config(mixup=mixup, cutmix=cutmix, mixup_prob=0.7, smoothing=0.2), 5)
    assert mixing is not None
    assert (mixing.mixup_alpha, mixing.cutmix_alpha, mixing.mix_prob) == (mixup, cutmix, 0.7)
    assert (mixing.label_smoothing, mixing.num_classes) == (0.2, 5)


def test_without_mixup_and_cutmix_nothing_is_mixed() -> None:
    assert build_mixup(config(), 5) is None
