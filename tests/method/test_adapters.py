"""Every family of models keeps the promises of the protocol: these tests run over the registry."""

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import mjp
from method.tiny import awake, generator, gradients, half_masked, pictures, relative_difference, vit
from mjp.method import backbones
from mjp.method.adapter import Adapter
from mjp.method.backbones import adapter_for, families, obstacles_of, split_tokens

CELL = {"cell": 8}  # a grid of 4x4 jigsaw pieces, whatever the family's own piece is


def example(family: str) -> Any:
    name, arguments = families()[family].EXAMPLE
    return awake(timm.create_model(name, **arguments))


def carried(model: nn.Module, name: str) -> mjp.MJPConfig | None:
    """A variant as far as the model can carry it, with an additional table where it needs one."""
    configs = [mjp.variant(name, **changes) for changes in ({}, CELL, {**CELL, "ape": True})]
    return next((config for config in configs if not obstacles_of(model, config)), None)


def wrapped(family: str, name: str) -> mjp.MJP:
    config = carried(example(family), name)
    assert config is not None
    return mjp.MJP(example(family), config).double().eval()


HIDING = [family for family in families() if carried(example(family), "G")]  # those that can hide positions
LOCALISED = [family for family in families() if carried(example(family), "J")]  # those that have a table


@pytest.mark.parametrize("family", families())
def test_an_adapter_can_be_built_and_answers_every_question(family: str) -> None:
    adapter = families()[family].ADAPTER
    questions = [name for name in vars(Adapter) if not name.startswith("_")] + ["handles", "exchangeable"]
    built = adapter_for(example(family), mjp.variant("E"))
    assert isinstance(built, adapter)
    assert [name for name in questions if not hasattr(built, name)] == []


def test_no_class_of_models_has_two_adapters() -> None:
    handled = [kind for family in families().values() for kind in family.ADAPTER.handles]
    assert len(handled) == len(set(handled))


@pytest.mark.parametrize(
    ("family", "name"),
    [(family, name) for family in families() for name in "ACEFGJ" if carried(example(family), name)],
)
def test_a_plan_that_moves_nothing_gives_timms_result(family: str, name: str) -> None:
    model, images = wrapped(family, name), pictures(2).double()
    plan = mjp.identity_plan(2, model.grid(images))
    timm_model: Any = model.model
    assert torch.equal(model(images), timm_model(images))
    assert torch.equal(model(images, plan).logits, timm_model(images))
    assert torch.equal(model.forward_features(images, plan), timm_model.forward_features(images))


@pytest.mark.parametrize("family", families())
def test_the_jigsaw_is_timm_on_shuffled_pictures(family: str) -> None:
    model, images = wrapped(family, "E"), pictures(2).double()
    plan = half_masked(2, model.grid(images))
    shuffled = mjp.shuffle_image(images, plan, model.adapter.cell)
    assert torch.allclose(model(images, plan).logits, model.model(shuffled), atol=1e-9)


@pytest.mark.parametrize("family", families())
def test_tokens_are_the_features_by_role(family: str) -> None:
    """No prefix token is left among the patches: they are the cells of a grid, and all features are accounted for."""
    model, images = wrapped(family, "E"), pictures(2).double()
    parts = model.tokens(images)
    features = model.forward_features(images)
    side = round(parts.patches.shape[1] ** 0.5)
    assert side**2 == parts.patches.shape[1]
    assert (
        parts.prefix.shape[1] + parts.patches.shape[1]
        == features.numel() // features.shape[0] // parts.patches.shape[2]
    )
    plain = split_tokens(model.model, model.model.forward_features(images))  # type: ignore[operator]
    assert all(torch.equal(a, b) for a, b in zip(parts, plain, strict=True))
    assert not parts.hidden.any()


@pytest.mark.parametrize("family", HIDING)
def test_hidden_tokens_are_those_of_masked_pieces(family: str) -> None:
    model, images = wrapped(family, "G"), pictures(2).double()
    plan = half_masked(2, model.grid(images))
    hidden = model.tokens(images, plan).hidden
    assert hidden.any()
    if hidden.shape == plan.mask.shape:
        assert torch.equal(hidden, plan.mask)


@pytest.mark.parametrize("family", HIDING)
def test_the_gradient_ignores_the_order_of_masked_pieces_where_the_adapter_says_so(family: str) -> None:
    model, images = wrapped(family, "G"), pictures(2).double()
    plan = half_masked(2, model.grid(images))
    other = mjp.plan_from_mask(plan.mask, plan.grid, generator=generator(1), derangement=True)
    results = []
    for order in (plan, other):
        model.zero_grad()
        model(images, order).logits.square().sum().backward()
        results.append(gradients(model).values())
    assert (relative_difference(*results) <= 1e-12) == model.adapter.exchangeable


@pytest.mark.parametrize("family", LOCALISED)
def test_the_position_table_follows_the_grid(family: str) -> None:
    model = wrapped(family, "J")
    table = model.position_table()
    assert table is not None
    rows, columns = model.adapter.tokens_per_cell
    resampled = model.position_table((3, 5))
    assert resampled is not None
    assert resampled.shape == (1, 3 * rows * 5 * columns, table.shape[-1])


# --- a new family, and models without one -----------------------------------------------------------------------------


class Turned(timm.models.VisionTransformer):
    """A ViT whose class token comes last, which only an adapter of its own can know."""

    def forward_features(self, x: Tensor, attn_mask: Any = None, is_causal: bool = False) -> Tensor:
        return super().forward_features(x, attn_mask, is_causal).roll(-1, 1)


NEW_FAMILY = """
from method.test_adapters import Turned
from mjp.method.adapter import token_parts
from mjp.method.backbones.pixels import Pixels


class LastClassToken(Pixels):
    handles = (Turned,)

    @classmethod
    def split_tokens(cls, model, features):
        return token_parts(features[:, :-1], features[:, -1:], class_token=True)


ADAPTER = LastClassToken
"""


def test_a_new_family_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "last_class_token.py").write_text(NEW_FAMILY)
    monkeypatch.setattr(backbones, "__path__", [*backbones.__path__, str(tmp_path)])
    families.cache_clear()
    try:
        network = Turned(img_size=32, patch_size=8, depth=1, embed_dim=48, num_heads=3).eval()
        model = mjp.MJP(network, mjp.variant("E", cell=8)).eval()
        assert type(model.adapter).__name__ == "LastClassToken"
        assert torch.equal(model.tokens(pictures(2)).summary, network.forward_features(pictures(2))[:, -1])
    finally:
        families.cache_clear()
        sys.modules.pop("mjp.method.backbones.last_class_token", None)


def test_tokens_of_unknown_roles_are_refused() -> None:
    """ConViT puts a class token before its patches and does not say so: it must not pass for a patch."""
    network = timm.create_model("convit_tiny", depth=2, local_up_to_layer=1).eval()
    model = mjp.MJP(network, mjp.variant("E")).eval()
    with pytest.raises(mjp.InputError, match="which of the 197 tokens of ConVit are patches is not known"):
        model.tokens(pictures(1, 224))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("convit_tiny", {"depth": 1, "local_up_to_layer": 1}), ("vit_tiny_r_s16_p8_224", {"depth": 1})],
)
def test_whatever_has_its_own_positions_takes_the_jigsaw_alone(name: str, arguments: dict[str, Any]) -> None:
    """What README promises: variant E for every model whose positions cannot be hidden."""
    network = timm.create_model(name, **arguments).eval()
    model, images = mjp.MJP(network, mjp.variant("E")).eval(), pictures(1, 224)
    plan = half_masked(1, model.grid(images))
    shuffled = mjp.shuffle_image(images, plan, model.adapter.cell)
    assert torch.allclose(model(images, plan).logits, network(shuffled), atol=1e-5)
    for variant in ("B", "G"):  # neither erased nor hidden in silence
        with pytest.raises(mjp.InputError, match=r"their places cannot be hidden|which no adapter hides"):
            mjp.MJP(network, mjp.variant(variant))


def test_a_vit_takes_larger_pieces_for_the_jigsaw_alone() -> None:
    model = mjp.MJP(vit(), mjp.variant("E", cell=16)).eval()
    plan = half_masked(2, (2, 2))
    expected = model.model(mjp.shuffle_image(pictures(2), plan, 16))
    assert torch.equal(model(pictures(2), plan).logits, expected)


def test_adapters_hold_no_weights() -> None:
    for family in families().values():
        assert not issubclass(family.ADAPTER, nn.Module)
        assert "Parameter" not in inspect.getsource(family.ADAPTER)
