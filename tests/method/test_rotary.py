"""Rotary positions: masked patches share one rotation in every block, and off is timm, bit for bit."""

from typing import Any

import pytest
import timm
import torch
from torch import nn

import mjp
from method.kinds import ROTARY, double, hiding, reordered, small, step
from method.tiny import SMALL_VIT, generator, gradients, half_masked, pictures, relative_difference, vit
from mjp.method.backbones import fit_config

DINOV3 = ROTARY["dinov3, its own sizes"]


@pytest.mark.parametrize("kind", ["rotations", "mixed"])
def test_the_gradient_ignores_the_order_of_patches_that_share_learned_angles(kind: str) -> None:
    model = double(hiding(ROTARY[kind](), unknown_rotation="learned"))
    nn.init.normal_(model.rotation, generator=generator(3))
    images, plan = pictures(2).double(), half_masked(2)
    assert relative_difference(step(model, images, plan), step(model, images, reordered(plan))) <= 1e-12


def test_hiding_the_table_alone_is_not_enough() -> None:
    """Both kinds of positions have to be hidden at once: with the rotations kept, the order shows."""
    model, images, plan = double(hiding(ROTARY["rotations and table"]())), pictures(2).double(), half_masked(2)
    positions = model._positions(plan)._replace(mask=None)
    features = [
        model.adapter.forward_features(model.model, images, order, positions._replace(table=table))
        for order in (plan, reordered(plan))
        for table in [torch.zeros_like(positions.table)]
    ]
    assert not torch.allclose(features[0][:, 0], features[1][:, 0], atol=1e-6)


@pytest.mark.parametrize("kind", ["rotations", "dinov3", "mixed"])
def test_hidden_patches_are_turned_by_nothing_and_others_as_before(kind: str) -> None:
    """Fully masked, the model is timm's without rotary positions, on shuffled pictures."""
    network = double(ROTARY[kind]())
    model, images, plan = hiding(network), pictures(2).double(), half_masked(2, ratio=1.0)
    hidden = model(images, plan).logits
    network.rope, network.rope_mixed = None, False
    assert torch.allclose(hidden, network(mjp.shuffle_image(images, plan, 8)), atol=1e-9)


@pytest.mark.parametrize("kind", ["rotations", "dinov3", "mixed"])
def test_learned_angles_start_as_the_identity_and_learn(kind: str) -> None:
    plan, images = half_masked(2), pictures(2)
    network = ROTARY[kind]()
    fixed, learned = hiding(network), hiding(network, unknown_rotation="learned")
    assert torch.equal(learned(images, plan).logits, fixed(images, plan).logits)
    learned(images, plan).logits.square().sum().backward()
    assert learned.rotation is not None
    assert learned.rotation.grad is not None
    assert learned.rotation.grad.abs().min() > 0
    assert learned.no_weight_decay() >= {"rotation"}


@pytest.mark.parametrize("name", ["vit_small_patch16_rope_224", "vit_small_patch16_dinov3"])  # two layouts of angles
def test_a_common_angle_of_all_patches_shows_only_beside_what_is_not_turned(name: str) -> None:
    """Attention sees differences of angles: without prefix tokens, and all masked, the learned angle cancels."""
    network = small(name, class_token=False, num_reg_tokens=0, global_pool="avg")
    model = double(hiding(network, unknown_rotation="learned"))
    images, plan = pictures(2).double(), half_masked(2, ratio=1.0)
    before = model(images, plan).logits
    nn.init.normal_(model.rotation, generator=generator())
    assert torch.allclose(model(images, plan).logits, before, atol=1e-9)
    half = half_masked(2)
    assert not torch.allclose(model(images, half).logits, hiding(network)(images, half).logits, atol=1e-6)


@pytest.mark.parametrize("size", [(48, 24), (16, 64)])
def test_dinov3_takes_any_size(size: tuple[int, int]) -> None:
    network = DINOV3().double()
    model, images = hiding(network), pictures(2, *size).double()
    grid = model.grid(images)
    assert torch.equal(model(images, mjp.identity_plan(2, grid)).logits, network(images))
    plan = half_masked(2, grid)
    assert relative_difference(step(model, images, plan), step(model, images, reordered(plan))) <= 1e-12


def test_a_new_input_size_is_followed() -> None:
    model = hiding(small())
    model.set_input_size((48, 64))
    images = pictures(2, 48, 64)
    assert torch.equal(model(images, mjp.identity_plan(2, (6, 8))).logits, model.model(images))
    assert model.train()(images).logits.shape == (2, 10)


@pytest.mark.parametrize("kind", ["rotations", "mixed", "rotations and table"])
def test_dropout_happens_where_timm_has_it(kind: str) -> None:
    names = {"rotations": "vit_small_patch16_rope_224", "mixed": "vit_small_patch16_rope_mixed_224"}
    rates = {"pos_drop_rate": 0.2, "patch_drop_rate": 0.25, "attn_drop_rate": 0.1, "drop_path_rate": 0.2}
    network = small(names.get(kind, "eva02_tiny_patch14_224"), **rates).train()
    model = hiding(network).train()
    torch.manual_seed(0)
    expected = network(pictures(4))
    torch.manual_seed(0)
    assert torch.equal(model(pictures(4), mjp.identity_plan(4, (4, 4))).logits, expected)
    assert torch.isfinite(model(pictures(4), half_masked(4)).logits).all()


# --- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rotations", "mixed"])
def test_learned_angles_compile_into_one_graph_forward_and_backward(kind: str) -> None:
    torch._dynamo.reset()
    model, images, plan = (
        double(hiding(ROTARY[kind](), unknown_rotation="learned")),
        pictures(2).double(),
        half_masked(2),
    )
    expected = step(model, images, plan)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    model.zero_grad()
    compiled(images, plan).logits.square().sum().backward()
    assert relative_difference(gradients(model).values(), expected) < 1e-12


def test_a_model_with_learned_angles_survives_saving(tmp_path: Any) -> None:
    model = hiding(timm.create_model("vit_small_patch16_rope_224", **SMALL_VIT), unknown_rotation="learned")
    nn.init.normal_(model.rotation)  # type: ignore[arg-type]
    model.save_pretrained(tmp_path)
    loaded = mjp.MJP.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(pictures(2), half_masked(2)).logits, model(pictures(2), half_masked(2)).logits)


# --- what it cannot carry ---------------------------------------------------------------------------------------------


def test_a_preset_keeps_hiding_and_loses_what_needs_a_table() -> None:
    with pytest.warns(
        UserWarning, match=r"Eva: its positions are rotations, with no table to localise; .*\(DAL\) is off"
    ):
        model = mjp.MJP(small(), "private")
    assert (model.config.position, model.config.localize, model.config.ratio) == ("unknown", "none", 0.27)
    assert model.hides_positions


def test_a_preset_is_complete_where_there_is_a_table() -> None:
    network = ROTARY["rotations and table"]()
    assert fit_config(mjp.preset("private"), network) == mjp.preset("private")
    model = mjp.MJP(network, "private").train()
    out = model(pictures(2), half_masked(2))
    assert out.dal > 0
    out.dal.backward()
    rows = network.pos_embed.grad[0, 1:].ne(0).any(-1)
    assert torch.equal(rows, (~half_masked(2).mask).any(0))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (mjp.variant("J"), "no table to localise: set localize='none'"),
        (mjp.variant("F"), "no table to add an index embedding to"),
        (mjp.variant("B"), "position='none' erases a table, not rotations"),
        (mjp.variant("G", ape=True), "`ape` is for Swin"),
        (mjp.variant("G", cell=16), "leave `cell` unset"),
    ],
)
def test_what_rotations_cannot_carry_is_refused(config: mjp.MJPConfig, reason: str) -> None:
    with pytest.raises(mjp.InputError, match=reason):
        mjp.MJP(small(), config)


def test_an_unknown_rotation_is_for_rotary_models() -> None:
    with pytest.raises(mjp.InputError, match="no rotary positions: leave `unknown_rotation` unset"):
        mjp.MJP(vit(), mjp.variant("J", unknown_rotation="learned"))
    with pytest.raises(mjp.InputError, match="set position='unknown'"):
        mjp.variant("E", unknown_rotation="learned")


def test_the_table_in_place_of_rotations_survives_saving(tmp_path: Any) -> None:
    """A rotary model and its absolute twin have one name in timm and differ in arguments that the model shows."""
    twin = timm.create_model("vit_small_patch16_rope_224", use_rot_pos_emb=False, use_abs_pos_emb=True, **SMALL_VIT)
    model = hiding(twin)
    model.save_pretrained(tmp_path)
    loaded = mjp.MJP.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(pictures(2), half_masked(2)).logits, model(pictures(2), half_masked(2)).logits)
