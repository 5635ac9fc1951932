"""The wrapper passes for a timm model: layer decay, classifier, features, and weights by timm's own names."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from timm.models import group_modules
from timm.optim import create_optimizer_v2, param_groups_layer_decay
from timm.utils import ModelEmaV2, ModelEmaV3
from torch import Tensor, nn

import mjp
from method.tiny import cnn, half_masked, pictures, swin, vit

MODELS: dict[str, Callable[[], mjp.MJP]] = {
    "vit": lambda: mjp.MJP(vit(), "paper"),
    "index": lambda: mjp.MJP(vit(), mjp.variant("F")),
    "swin": lambda: mjp.MJP(swin(), mjp.preset("paper", ape=True)),
    "cnn": lambda: mjp.MJP(cnn(), mjp.variant("E")),
}


def scales(model: nn.Module) -> dict[str, float]:
    """The learning-rate factor of every parameter under timm's layer decay."""
    names = {id(p): name for name, p in model.named_parameters()}
    groups = param_groups_layer_decay(model, layer_decay=0.5)
    return {names[id(p)]: group["lr_scale"] for group in groups for p in group["params"]}


@pytest.mark.parametrize("kind", MODELS)
def test_layer_decay_is_that_of_the_bare_model(kind: str) -> None:
    model = MODELS[kind]()
    wrapped, bare = scales(model), scales(model.model)
    assert len(set(bare.values())) > 2
    assert {name: wrapped[f"model.{name}"] for name in bare} == bare
    additions = {name: scale for name, scale in wrapped.items() if not name.startswith("model.")}
    stem, last = min(bare.values()), max(bare.values())
    assert additions == {name: last if name.startswith("localizer") else stem for name in additions}


def test_timms_optimizers_decay_layers_of_a_wrapped_model() -> None:
    optimizer = create_optimizer_v2(MODELS["vit"](), opt="adamw", lr=1e-3, layer_decay=0.75)
    assert len({group["lr_scale"] for group in optimizer.param_groups}) == 4  # stem, two blocks, head


def test_layers_of_modules_are_those_of_their_parameters() -> None:
    model = MODELS["vit"]()
    layers = group_modules(model, model.group_matcher(coarse=True), reverse=True)
    assert layers["model.patch_embed.proj"] == 0
    assert layers["model.blocks.0.attn.qkv"] < layers["model.blocks.1.attn.qkv"] < layers["model.head"]


@pytest.mark.parametrize("kind", MODELS)
def test_what_tools_ask_a_timm_model(kind: str) -> None:
    model: Any = MODELS[kind]()
    assert (model.num_classes, model.num_features) == (10, model.model.num_features)
    assert timm.data.resolve_model_data_config(model) == timm.data.resolve_model_data_config(model.model)
    assert model.get_classifier() is model.model.get_classifier()
    model.set_grad_checkpointing()
    assert kind == "swin" or model.model.grad_checkpointing


@pytest.mark.parametrize("kind", MODELS)
def test_a_new_classifier_has_the_new_classes(kind: str) -> None:
    model = MODELS[kind]().eval()
    model.classes = [str(i) for i in range(10)]
    model.reset_classifier(3)
    assert model.num_classes == 3
    assert vars(model)["classes"] is None
    assert model(pictures(2)).shape == (2, 3)
    plan = half_masked(2, model.grid(pictures(2)))
    assert model(pictures(2), plan).logits.shape == (2, 3)


def test_a_new_classifier_may_pool_otherwise() -> None:
    model = MODELS["vit"]().eval()
    model.reset_classifier(3, "avg")
    assert torch.equal(model(pictures(2)), model.model(pictures(2)))


# --- features ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODELS)
def test_features_and_head_make_the_forward_pass(kind: str) -> None:
    model, images = MODELS[kind]().eval(), pictures(2)
    plan = half_masked(2, model.grid(images))
    assert torch.equal(model.forward_head(model.forward_features(images)), model(images))
    assert torch.equal(model.forward_head(model.forward_features(images, plan)), model(images, plan).logits)
    assert model.forward_head(model.forward_features(images), pre_logits=True).ndim == 2


def test_in_training_features_are_those_of_a_drawn_plan() -> None:
    one = mjp.MJP(vit(), mjp.variant("G", ratio=0.5)).train()
    other = copy.deepcopy(one)
    plan = other.sample_plan(pictures())
    assert plan.mask.any()
    assert torch.equal(one.forward_features(pictures()), other.forward_features(pictures(), plan))


@pytest.mark.parametrize("kind", ["vit", "index", "swin", "cnn"])
def test_intermediates_end_in_the_features(kind: str) -> None:
    model = MODELS[kind]().eval()
    for name in ("index", "pos_embed"):
        if getattr(model, name) is not None:
            nn.init.normal_(getattr(model, name))
    final, layers = model.forward_intermediates(pictures(2))
    assert len(layers) >= 2
    assert torch.allclose(final, model.forward_features(pictures(2)), atol=1e-5)
    again = model.forward_intermediates(pictures(2), indices=[0], intermediates_only=True)
    assert torch.equal(again[0], layers[0])


# --- weights ----------------------------------------------------------------------------------------------------------


def changed(model: nn.Module) -> dict[str, Tensor]:
    """Weights of the same names and shapes, none of them equal."""
    return {n: t + 1 if t.is_floating_point() else t for n, t in model.state_dict().items()}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", MODELS)
def test_timm_weights_load_by_their_own_names(kind: str, strict: bool) -> None:
    model = MODELS[kind]()
    weights = changed(model.model)
    additions = {n: t.clone() for n, t in model.weights().items() if not n.startswith("model.")}
    assert model.load_state_dict(weights, strict=strict) == ([], [])
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.model.state_dict().items())
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in additions.items())


def test_timm_weights_load_inside_another_module() -> None:
    model = MODELS["vit"]()
    weights = changed(model.model)
    outer = nn.ModuleDict({"backbone": model})
    outer.load_state_dict({f"backbone.{name}": tensor for name, tensor in weights.items()})
    assert torch.equal(model.model.get_parameter("pos_embed"), weights["pos_embed"])


def test_names_of_timm_and_of_mjp_may_be_mixed_and_must_be_complete() -> None:
    model = MODELS["vit"]()
    weights = changed(model.model) | {"unknown": torch.ones(48)}
    missing = model.load_state_dict(weights, strict=False).missing_keys
    assert torch.equal(model.get_parameter("unknown"), torch.ones(48))
    assert [name.split(".")[0] for name in missing] == ["localizer"] * 4
    with pytest.raises(RuntimeError, match=r"Missing key.*localizer"):
        model.load_state_dict(weights)


def test_missing_and_foreign_timm_weights_are_still_named() -> None:
    model = MODELS["vit"]()
    weights = changed(model.model)
    del weights["cls_token"]
    with pytest.raises(RuntimeError, match=r"Missing key.*model\.cls_token"):
        model.load_state_dict(weights)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*stranger"):
        model.load_state_dict({**changed(model.model), "stranger": torch.zeros(1)})


@pytest.mark.parametrize("average", [ModelEmaV2, ModelEmaV3])
def test_timms_moving_averages_take_a_wrapped_model(average: Any) -> None:
    model = mjp.MJP(vit(), mjp.variant("J", ratio=0.5)).train()
    ema = average(model, decay=0.5)
    before = model.get_parameter("unknown").detach().clone()
    with torch.no_grad():
        model.get_parameter("unknown").add_(1)
    model.sample_plan(pictures())  # moves the generator, which is not to be averaged
    ema.update(model)
    assert torch.allclose(ema.module.get_parameter("unknown"), before + 0.5)
    ema.set(model)
    assert torch.equal(ema.module.get_parameter("unknown"), model.get_parameter("unknown"))
