"""The wrapper: timm's own function when off, hidden positions when on."""

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.optim import create_optimizer_v2, param_groups_weight_decay
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import mjp
from method.tiny import CountOperators, cnn, generator, gradients, half_masked, pictures, relative_difference, swin, vit
from mjp.method.config import PRESETS, VARIANTS
from mjp.method.positions import hide_positions

LABELS = torch.tensor([1, 7, 3, 0])


def loss_of(model: mjp.MJP, out: mjp.MJPOutput) -> Tensor:
    return cross_entropy(out.logits, LABELS) + model.config.localize_weight * out.dal


def step(model: mjp.MJP, images: Tensor, plan: mjp.Plan | None = None) -> mjp.MJPOutput:
    """One training step's gradients, on the parameters."""
    model.zero_grad()
    out: mjp.MJPOutput = model.train()(images, plan)
    loss_of(model, out).backward()
    return out


def grad_of(parameter: Any) -> Tensor:
    assert parameter.grad is not None
    gradient: Tensor = parameter.grad
    return gradient


# --- a training step of every configuration ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*VARIANTS, *PRESETS])
def test_one_training_step_reaches_every_trainable_parameter(name: str) -> None:
    config = VARIANTS[name] if name in VARIANTS else PRESETS[name]
    model = mjp.MJP(vit(), config)
    out = step(model, pictures())
    assert out.logits.shape == (4, 10)
    assert out.features.shape == (4, 48)
    assert out.dal.shape == ()
    missing = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []
    assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())


@pytest.mark.parametrize("name", [*VARIANTS, "reference"])
def test_a_training_step_never_waits_for_the_device(name: str) -> None:
    """Drawing the plan, forward and backward: no operator brings a value to the host, none runs once per image."""
    model = mjp.MJP(vit(), VARIANTS.get(name) or PRESETS[name]).train()
    model.epoch = 20
    counts = []
    for batch in (2, 16):
        images, labels = pictures(batch), torch.zeros(batch, dtype=torch.long)
        model.zero_grad()
        with CountOperators() as operators:
            out = model(images)
            (cross_entropy(out.logits, labels) + out.dal).backward()
        counts.append(operators.count)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", ["A", "B", "C", "E", "F", "G"])
def test_dal_is_zero_without_a_localization_head(name: str) -> None:
    assert mjp.MJP(vit(), VARIANTS[name]).train()(pictures()).dal.item() == 0


@pytest.mark.parametrize("name", ["D", "H", "I", "J"])
def test_dal_is_the_localization_loss_of_the_table(name: str) -> None:
    model = mjp.MJP(vit(), mjp.variant(name, ratio=0.5))
    plan = half_masked()
    out = model(pictures(), plan)
    targets = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
    assert model.localizer is not None
    predictions = model.localizer(model.unwrap().get_parameter("pos_embed")[0, 1:], targets)
    assert torch.allclose(out.dal, mjp.localization_loss(predictions, targets, plan.mask))
    assert out.dal.item() > 0


def test_dal_can_use_unit_targets() -> None:
    grid, unit = (mjp.MJP(vit(), mjp.variant("I", localize_targets=targets)) for targets in ("grid", "unit"))
    plan = mjp.identity_plan(4, (4, 4))
    for model in (grid, unit):
        nn.init.zeros_(model.get_parameter("localizer.head.weight"))  # predicts (0, 0) everywhere
    assert grid(pictures(), plan).dal.item() == pytest.approx(3.0)
    assert unit(pictures(), plan).dal.item() == pytest.approx(1.0)


def test_the_preset_reference_has_half_the_localization_loss_of_paper() -> None:
    paper, reference = (mjp.MJP(vit(), name) for name in ("paper", "reference"))
    reference.load_state_dict(paper.state_dict())
    plan = half_masked()
    assert reference(pictures(), plan).dal.item() == pytest.approx(paper(pictures(), plan).dal.item() / 2)


def test_everything_masked_gives_zero_dal_and_finite_gradients() -> None:
    model = mjp.MJP(vit(), mjp.variant("J", ratio=1.0))
    out = step(model, pictures())
    assert out.plan.mask.all()
    assert out.dal.item() == 0
    assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())


def test_features_are_what_the_classifier_sees() -> None:
    model = mjp.MJP(vit(), "paper")
    out = model(pictures(), half_masked())
    assert torch.equal(model.unwrap().get_submodule("head")(out.features), out.logits)


# --- the plan a model draws -------------------------------------------------------------------------------------------


def test_training_draws_the_configured_jigsaw() -> None:
    out = mjp.MJP(vit(), mjp.variant("G", ratio=0.5)).train()(pictures())
    assert out.plan.mask.sum(1).tolist() == [8] * 4


def test_training_without_a_plan_equals_training_with_the_plan_it_drew() -> None:
    model = mjp.MJP(vit(), mjp.variant("J", ratio=0.5)).train()
    out = model(pictures())
    assert torch.equal(model(pictures(), out.plan).logits, out.logits)


@pytest.mark.parametrize(
    "changes",
    [{"shared": True}, {"derangement": True}, {"sampler": "uniform"}, {"min_block": 1}, {"aspect": (1.0, 1.0)}],
)
def test_sampler_settings_reach_the_plan(changes: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"sampler": "blockwise", "ratio": 0.5, "seed": 3, **changes}
    model = mjp.MJP(cnn(), mjp.variant("E", cell=2, **settings))
    seed, ratio = settings.pop("seed"), settings.pop("ratio")
    expected = mjp.sample_plan(4, (16, 16), ratio, generator=generator(seed), **settings)
    found = model.sample_plan(pictures())
    assert all(torch.equal(a, b) for a, b in zip(found[:3], expected[:3], strict=True))


def test_probability_zero_never_shuffles() -> None:
    model = mjp.MJP(vit(), mjp.variant("J", ratio=0.5, probability=0.0)).train()
    assert not model(pictures()).plan.mask.any()


def test_start_epoch_is_honoured() -> None:
    model = mjp.MJP(vit(), mjp.variant("J", ratio=0.5, start_epoch=2)).train()
    masked = []
    for epoch in range(4):
        model.epoch = epoch
        masked.append(bool(model(pictures()).plan.mask.any()))
    assert masked == [False, False, True, True]


@pytest.mark.parametrize("name", ["A", "B", "D"])
def test_variants_without_shuffling_move_nothing(name: str) -> None:
    assert mjp.MJP(vit(), VARIANTS[name]).train()(pictures()).plan.budget == 0


def test_spp_variant_moves_patches_and_pixels() -> None:
    plan = mjp.MJP(vit(), mjp.variant("C")).sample_plan(pictures())
    assert plan.mask.all()
    assert plan.pixels is not None
    assert plan.pixels.shape == (4, 64)


def test_spp_shuffles_the_pixels_that_the_model_sees() -> None:
    model = mjp.MJP(vit(), mjp.variant("C")).eval()
    plan, images = model.sample_plan(pictures()), pictures()
    assert torch.allclose(model(images, plan).logits, model(mjp.shuffle_image(images, plan, 8)), atol=1e-5)


def test_models_with_one_seed_draw_the_same_plans_whatever_torch_drew() -> None:
    torch.manual_seed(1)
    one = mjp.MJP(vit(), mjp.variant("J", ratio=0.5))
    torch.manual_seed(2)
    other = mjp.MJP(vit(), mjp.variant("J", ratio=0.5))
    assert torch.equal(one.sample_plan(pictures()).mask, other.sample_plan(pictures()).mask)
    assert one.unknown is not None
    assert other.unknown is not None
    assert torch.equal(one.unknown, other.unknown)


def test_wrapping_leaves_the_models_random_state_alone() -> None:
    model = vit()
    state = torch.get_rng_state()
    mjp.MJP(model, mjp.variant("G", ratio=0.5)).train()(pictures())
    assert torch.equal(torch.get_rng_state(), state)


# --- E_unk ------------------------------------------------------------------------------------------------------------


def positions_seen(model: mjp.MJP, plan: mjp.Plan) -> Tensor:
    """(B, tokens, D): what the model adds to its tokens, found by making all tokens zero."""
    seen: list[Tensor] = []
    network: Any = model.model
    with torch.no_grad():
        for parameter in (network.patch_embed.proj.weight, network.patch_embed.proj.bias, network.cls_token):
            parameter.zero_()
    handle = network.blocks.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    model(pictures(len(plan.mask)), plan)
    handle.remove()
    return seen[0]


def test_every_masked_slot_gets_unknown_even_where_the_patch_did_not_move() -> None:
    model, plan = mjp.MJP(vit(), "paper"), half_masked(8)
    stayed = plan.mask & (plan.permutation == torch.arange(16))
    assert stayed.any()
    seen = positions_seen(model, plan)
    table = model.unwrap().get_parameter("pos_embed").detach()
    assert model.unknown is not None
    assert (seen[:, 1:][plan.mask] == model.unknown.detach()).all()
    assert torch.equal(seen[:, 1:][~plan.mask], table[:, 1:].expand(8, -1, -1)[~plan.mask])


def test_class_token_keeps_its_position() -> None:
    model = mjp.MJP(vit(), "paper")
    seen = positions_seen(model, half_masked(4, ratio=1.0))
    table = model.unwrap().get_parameter("pos_embed").detach()
    assert torch.equal(seen[:, 0], table[:, 0].expand(4, -1))


def test_jigsaw_alone_leaves_positions_with_their_slots() -> None:
    model = mjp.MJP(vit(), mjp.variant("E"))
    seen = positions_seen(model, half_masked(4))
    assert torch.equal(seen, model.unwrap().get_parameter("pos_embed").detach().expand(4, -1, -1))


def test_unknown_is_one_vector() -> None:
    model = mjp.MJP(vit(), "paper")
    assert model.unknown is not None
    assert model.unknown.shape == (48,)


@pytest.mark.parametrize("how", ["normal", "mean", "zeros"])
def test_unknown_starts_as_configured(how: str) -> None:
    network = vit()
    model = mjp.MJP(network, mjp.variant("G", unknown_init=how))
    assert model.unknown is not None
    unknown = model.unknown.detach()
    if how == "mean":
        assert torch.allclose(unknown, network.pos_embed[0, 1:].mean(0))
    elif how == "zeros":
        assert torch.equal(unknown, torch.zeros(48))
    else:
        assert 0.015 < float(unknown.std()) < 0.025


def test_gradient_of_masked_position_rows_is_exactly_zero() -> None:
    model = mjp.MJP(vit(), mjp.variant("G", shared=True, ratio=0.5))
    out = step(model, pictures())
    rows = grad_of(model.unwrap().get_parameter("pos_embed"))[0, 1:]
    mask = out.plan.mask[0]
    assert (rows[mask] == 0).all()
    assert (rows[~mask] != 0).any(1).all()


def reordered(plan: mjp.Plan, seed: int) -> mjp.Plan:
    return mjp.plan_from_mask(plan.mask, plan.grid, generator=generator(seed), derangement=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["G", "H", "I", "J"])
def test_gradient_does_not_depend_on_the_order_of_masked_patches(name: str, dtype: torch.dtype) -> None:
    model = mjp.MJP(vit(), mjp.variant(name)).to(dtype)
    images, plan = pictures().to(dtype), half_masked()
    one = step(model, images, plan)
    expected = gradients(model)
    other = step(model, images, reordered(plan, 1))
    assert not torch.equal(one.plan.permutation, other.plan.permutation)
    assert relative_difference(gradients(model).values(), expected.values()) <= 1e-5
    assert torch.allclose(one.logits, other.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["E", "F"])
def test_gradient_does_depend_on_the_order_when_unknown_is_off(name: str) -> None:
    model = mjp.MJP(vit(), mjp.variant(name))
    images, plan = pictures(), half_masked()
    step(model, images, plan)
    expected = gradients(model)
    step(model, images, reordered(plan, 1))
    assert relative_difference(gradients(model).values(), expected.values()) > 1e-2


@given(seed=st.integers(0, 2**32), ratio=st.floats(0.1, 1))
@settings(max_examples=10)
def test_logits_do_not_depend_on_the_order_of_masked_patches(seed: int, ratio: float) -> None:
    model = mjp.MJP(vit(), "paper").double()
    images, plan = pictures().double(), half_masked(ratio=max(ratio, 0.13))
    with torch.no_grad():
        assert torch.allclose(model(images, plan).logits, model(images, reordered(plan, seed)).logits, atol=1e-10)


def test_one_functional_call_of_timm_gives_the_same_logits() -> None:
    """The oracle: an unmodified timm model that is handed the hidden table and the shuffled picture."""
    network = vit()
    model = mjp.MJP(network, "paper")
    images, plan = pictures(), half_masked()
    table, unknown = network.pos_embed, model.unknown
    assert unknown is not None
    hidden = torch.cat([table[:, :1].expand(4, -1, -1), hide_positions(table[:, 1:], unknown, plan.mask)], 1)
    shuffled = mjp.shuffle_image(images, plan, 8)
    expected = [
        torch.func.functional_call(network, {"pos_embed": hidden[i : i + 1]}, (shuffled[i : i + 1],)) for i in range(4)
    ]
    assert torch.allclose(model(images, plan).logits, torch.cat(expected), atol=1e-5)


# --- unwrap, index, no positions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_unwrap_gives_back_the_same_object(name: str) -> None:
    network = vit()
    assert mjp.MJP(network, VARIANTS[name]).unwrap() is network


@pytest.mark.parametrize("name", sorted(set(VARIANTS) - {"B"}))
def test_wrapping_changes_no_weight(name: str) -> None:
    network = vit()
    before = copy.deepcopy(network.state_dict())
    mjp.MJP(network, VARIANTS[name])
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())


def test_index_embedding_starts_at_zero_and_is_added_to_every_slot() -> None:
    network = vit()
    model = mjp.MJP(network, mjp.variant("F"))
    assert model.index is not None
    assert torch.equal(model.index, torch.zeros(1, 16, 48))
    nn.init.normal_(model.index)
    table = network.pos_embed.detach()
    expected = torch.cat([table[:, :1], table[:, 1:] + model.index.detach()], 1)
    assert torch.allclose(positions_seen(model, half_masked()), expected.expand(4, -1, -1), atol=1e-6)


def test_unwrap_folds_the_index_embedding_and_keeps_the_function() -> None:
    model = mjp.MJP(vit(), mjp.variant("F")).eval()
    assert model.index is not None
    nn.init.normal_(model.index)
    expected = model(pictures())
    network = model.unwrap()
    assert torch.allclose(network(pictures()), expected, atol=1e-5)
    assert torch.allclose(model(pictures()), expected, atol=1e-5)
    assert model.unwrap() is network  # once more changes nothing
    assert torch.allclose(network(pictures()), expected, atol=1e-5)


def test_unwrap_keeps_what_was_learned() -> None:
    model = mjp.MJP(vit(), "private")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, pictures())
    optimizer.step()
    assert torch.equal(model.unwrap().eval()(pictures()), model.eval()(pictures()))


def test_variant_b_has_zero_frozen_positions_and_ignores_order() -> None:
    model = mjp.MJP(vit(), mjp.variant("B"))
    table = model.unwrap().get_parameter("pos_embed")
    assert not table.requires_grad
    assert (table == 0).all()
    step(model, pictures())
    images = pictures().double()
    shuffled = mjp.shuffle_image(images, half_masked(ratio=1.0), 8)
    model.eval().double()
    assert torch.allclose(model(images), model(shuffled), atol=1e-10)


# --- optimizers -------------------------------------------------------------------------------------------------------


def decayed(model: nn.Module, groups: Any) -> set[str]:
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}


@pytest.mark.parametrize(("name", "extra"), [("J", "unknown"), ("F", "index")])
def test_timm_optimizers_treat_our_positions_like_the_position_table(name: str, extra: str) -> None:
    model = mjp.MJP(vit(), VARIANTS[name])
    assert {"model.pos_embed", "model.cls_token", extra} <= model.no_weight_decay()
    by_hand = param_groups_weight_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay())
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    for groups in (by_hand, optimizer.param_groups):
        assert "model.blocks.0.attn.qkv.weight" in decayed(model, groups)
        assert not decayed(model, groups) & {"model.pos_embed", "model.cls_token", extra}


def test_swin_with_ape_decays_none_of_its_positions() -> None:
    model = mjp.MJP(swin(), mjp.preset("paper", ape=True))
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    assert not decayed(model, optimizer.param_groups) & {"pos_embed", "unknown"}
    assert not [name for name in decayed(model, optimizer.param_groups) if "relative_position" in name]


def test_names_without_weight_decay_are_names_of_parameters() -> None:
    for model in (
        mjp.MJP(vit(), "paper"),
        mjp.MJP(cnn(), mjp.variant("E")),
        mjp.MJP(swin(), mjp.preset("paper", ape=True)),
    ):
        assert model.no_weight_decay() <= {name for name, _ in model.named_parameters()}


# --- copies -----------------------------------------------------------------------------------------------------------


def test_a_deep_copy_draws_the_same_plans_and_then_goes_its_own_way() -> None:
    model = mjp.MJP(vit(), mjp.variant("J", ratio=0.5))
    model.sample_plan(pictures())
    other = copy.deepcopy(model)
    expected = [model.sample_plan(pictures()) for _ in range(2)]  # drawing here does not move the copy's generator
    found = [other.sample_plan(pictures()) for _ in range(2)]
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a.permutation, b.permutation)
    with torch.no_grad():
        other.get_parameter("unknown").zero_()
    assert (model.get_parameter("unknown") != 0).any()


def test_pickling_keeps_function_and_plans() -> None:
    model = mjp.MJP(vit(), mjp.variant("J", ratio=0.5)).eval()
    other = pickle.loads(pickle.dumps(model))
    assert torch.equal(other(pictures()), model(pictures()))
    assert torch.equal(other.sample_plan(pictures()).permutation, model.sample_plan(pictures()).permutation)


def test_state_dict_holds_timm_weights_under_one_prefix() -> None:
    network = vit()
    names = set(mjp.MJP(network, "paper").state_dict())
    assert {f"model.{name}" for name in network.state_dict()} <= names
    assert {name for name in names if not name.startswith("model.")} == {
        "_extra_state", "unknown", "localizer.head.0.weight", "localizer.head.0.bias", "localizer.head.2.weight",
        "localizer.head.2.bias",
    }  # fmt: skip


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "names"), [((30, 32), "30x32 pixels"), ((64, 64), r"grid of \(8, 8\)"), ((32, 24), r"grid of \(4, 3\)")]
)
def test_images_of_the_wrong_size_are_refused(size: tuple[int, int], names: str) -> None:
    model = mjp.MJP(vit(), "private").train()
    with pytest.raises(mjp.InputError, match=names):
        model(pictures(2, *size))


@pytest.mark.parametrize(("plan", "names"), [(half_masked(3), "batch"), (half_masked(4, (2, 8)), "grid")])
def test_a_plan_for_other_images_is_refused(plan: mjp.Plan, names: str) -> None:
    with pytest.raises(mjp.InputError, match=names):
        mjp.MJP(vit(), "paper")(pictures(), plan)


def test_images_without_a_batch_are_refused() -> None:
    with pytest.raises(mjp.InputError, match="images must be a tensor of shape"):
        mjp.MJP(vit(), "paper").train()(pictures()[0])


def test_a_refused_batch_draws_no_plan() -> None:
    model = mjp.MJP(vit(), "private").train()
    before = model.generator.get_state()
    with pytest.raises(mjp.InputError):
        model(pictures(2, 64))
    assert torch.equal(model.generator.get_state(), before)
