"""Model families: bit-equality with timm when nothing is masked, and clear refusals."""

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import mjp
from method.tiny import SMALL_VIT, awake, cnn, generator, half_masked, pictures, swin, vit
from mjp.method.config import VARIANTS

Make = Callable[[], Any]

VITS: dict[str, Make] = {
    "class token": vit,
    "distilled": lambda: vit("deit_tiny_distilled_patch16_224"),
    "registers": lambda: vit("vit_little_patch16_reg4_gap_256"),
    "registers and class token": lambda: vit("vit_small_patch14_reg4_dinov2", no_embed_class=False),
    "no class token": lambda: vit("vit_base_patch16_224", class_token=False, global_pool="avg"),
    "no_embed_class": lambda: vit("deit3_small_patch16_224"),
    "dynamic size": lambda: vit(dynamic_img_size=True),
    "norm_pre": lambda: vit("vit_base_patch16_clip_224"),
    "attention pooling": lambda: vit("vit_base_patch16_siglip_224", num_classes=10),
    "grad checkpointing": lambda: _checkpointed(vit()),
}
SWINS: dict[str, Make] = {
    "swin": swin,
    "swin v2": lambda: awake(
        timm.create_model(
            "swinv2_tiny_window8_256", img_size=32, window_size=4, embed_dim=24, depths=(1, 1), num_heads=(2, 4),
            num_classes=10,
        )
    ),
}  # fmt: skip
CNNS: dict[str, Make] = {
    "resnet": cnn,
    "convnext": lambda: cnn("test_convnext"),
    "efficientnet": lambda: cnn("test_efficientnet"),
}
WITHOUT_POSITIONS = ("A", "C", "E")  # rows of the table that any model can carry


def _checkpointed(network: Any) -> Any:
    network.set_grad_checkpointing()
    return network


def grid_of(model: mjp.MJP, images: Tensor) -> tuple[int, int]:
    height, width = model.adapter.cell
    return images.shape[2] // height, images.shape[3] // width


def assert_equal_when_off(network: nn.Module, config: mjp.MJPConfig, images: Tensor) -> None:
    """Without a plan in eval mode, and under the plan that moves nothing: timm's own logits, bit for bit."""
    expected = network(images)
    model = mjp.MJP(network, config).eval()
    assert torch.equal(model(images), expected)
    out = model(images, mjp.identity_plan(len(images), grid_of(model, images)))
    assert torch.equal(out.logits, expected)
    assert torch.equal(network(images), expected)


@pytest.mark.parametrize("name", sorted(set(VARIANTS) - {"B"}))
@pytest.mark.parametrize("kind", VITS)
def test_vit_equals_timm_when_off(kind: str, name: str) -> None:
    assert_equal_when_off(VITS[kind](), VARIANTS[name], pictures(2))


@pytest.mark.parametrize("name", WITHOUT_POSITIONS)
def test_vit_without_position_embeddings_equals_timm_when_off(name: str) -> None:
    assert_equal_when_off(vit(pos_embed="none"), VARIANTS[name], pictures(2))


@pytest.mark.parametrize("size", [(32, 32), (48, 48), (16, 40), (64, 8)])
@pytest.mark.parametrize("name", ["E", "F", "J"])
def test_dynamic_size_equals_timm_at_any_size(size: tuple[int, int], name: str) -> None:
    assert_equal_when_off(vit(dynamic_img_size=True), VARIANTS[name], pictures(2, *size))


@pytest.mark.parametrize("name", ["E", "F", "J"])
def test_models_for_oblong_pictures_equal_timm(name: str) -> None:
    assert_equal_when_off(vit(img_size=(24, 40)), VARIANTS[name], pictures(2, 24, 40))


@pytest.mark.parametrize("name", WITHOUT_POSITIONS)
@pytest.mark.parametrize("kind", [*SWINS, *CNNS])
def test_models_without_absolute_positions_equal_timm_when_off(kind: str, name: str) -> None:
    assert_equal_when_off({**SWINS, **CNNS}[kind](), VARIANTS[name], pictures(2))


@pytest.mark.parametrize("name", sorted(set(VARIANTS) - {"B"}))
@pytest.mark.parametrize("kind", SWINS)
def test_swin_with_absolute_positions_equals_timm_at_the_start(kind: str, name: str) -> None:
    config = mjp.variant(name, ape=True)
    assert_equal_when_off(SWINS[kind](), config, pictures(2))


@pytest.mark.parametrize("kind", VITS)
def test_training_mode_under_an_identity_plan_equals_timm(kind: str) -> None:
    network = VITS[kind]().train()
    model = mjp.MJP(network, "paper").train()
    assert torch.equal(model(pictures(2), mjp.identity_plan(2, (4, 4))).logits, network(pictures(2)))


def test_dropout_happens_where_timm_has_it() -> None:
    """Same seed, same dropout masks: position, patch, attention and path dropout all at timm's places."""
    network = vit(pos_drop_rate=0.2, patch_drop_rate=0.25, attn_drop_rate=0.1, drop_path_rate=0.2, proj_drop_rate=0.1)
    model = mjp.MJP(network.train(), mjp.variant("E")).train()
    torch.manual_seed(0)
    expected = network(pictures(4))
    torch.manual_seed(0)
    assert torch.equal(model(pictures(4), mjp.identity_plan(4, (4, 4))).logits, expected)


# --- under a plan -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*VITS, *SWINS, *CNNS])
def test_jigsaw_equals_timm_on_shuffled_pictures(kind: str) -> None:
    """Variant E with any plan is timm on pictures whose pixels were shuffled: token path equals pixel path."""
    network = {**VITS, **SWINS, **CNNS}[kind]().double()
    config = mjp.variant("E") if kind in VITS else mjp.variant("E", cell=8)
    model, plan, images = mjp.MJP(network, config), half_masked(2), pictures(2).double()
    expected = network(mjp.shuffle_image(images, plan, 8))
    assert torch.allclose(model(images, plan).logits, expected, atol=1e-9)
    assert not torch.allclose(expected, network(images), atol=1e-6)


@pytest.mark.parametrize("kind", VITS)
def test_prefix_tokens_keep_their_positions_under_a_full_mask(kind: str) -> None:
    """With the table's patch rows set to E_unk, timm sees what a fully masked model sees."""
    network = VITS[kind]().double()
    model, plan, images = mjp.MJP(network, "paper").double(), half_masked(2, ratio=1.0), pictures(2).double()
    found = model(images, plan).logits
    assert model.unknown is not None
    with torch.no_grad():
        network.pos_embed[:, -16:] = model.unknown
    assert torch.allclose(found, network(mjp.shuffle_image(images, plan, 8)), atol=1e-9)


def test_dynamic_size_hides_rows_of_the_resampled_table() -> None:
    """Fully masked, the grid no longer matters: what is left of the table is E_unk and the class token's row."""
    network = vit(dynamic_img_size=True).double()
    model, images = mjp.MJP(network, "paper").double(), pictures(2, 48, 24).double()
    plan = half_masked(2, (6, 3), ratio=1.0)
    found = model(images, plan).logits
    assert model.unknown is not None
    with torch.no_grad():
        network.pos_embed[:, 1:] = model.unknown
    assert torch.allclose(found, network(mjp.shuffle_image(images, plan, 8)), atol=1e-6)


def test_swin_hides_the_absolute_position_of_all_tokens_of_a_cell() -> None:
    model = mjp.MJP(swin(), mjp.preset("paper", ape=True, cell=8))
    assert model.pos_embed is not None
    nn.init.normal_(model.pos_embed)
    plan = half_masked(2)
    model.train()(pictures(2), plan).logits.square().sum().backward()
    assert model.pos_embed.grad is not None
    rows = model.pos_embed.grad.view(8, 8, -1).ne(0).any(-1)
    visible = (~plan.mask).any(0).view(4, 4).repeat_interleave(2, 0).repeat_interleave(2, 1)
    assert torch.equal(rows, visible)


def test_swin_adds_its_absolute_positions_to_the_patch_embedding() -> None:
    network = swin().double()
    model = mjp.MJP(network, mjp.preset("paper", ape=True)).double().eval()
    assert model.pos_embed is not None
    nn.init.normal_(model.pos_embed)
    table = model.pos_embed.detach().view(1, 8, 8, 24)
    found = model(pictures(2).double())
    network.patch_embed.register_forward_hook(lambda module, args, out: out + table)
    assert torch.allclose(found, network(pictures(2).double()), atol=1e-10)


def test_swin_gradient_does_not_depend_on_the_order_of_masked_pieces_only_through_its_relative_bias() -> None:
    """Relative position bias is never hidden: the order of masked pieces still shows in a Swin."""
    model = mjp.MJP(swin().double(), mjp.preset("private", ape=True, cell=8)).double()
    plan = half_masked(2)
    other = mjp.plan_from_mask(plan.mask, (4, 4), generator=generator(9))
    images = pictures(2).double()
    assert not torch.allclose(model(images, plan).logits, model(images, other).logits, atol=1e-6)


def test_swin_unwraps_with_a_warning_that_positions_stay_behind() -> None:
    network = swin()
    with pytest.warns(UserWarning, match="absolute position embedding"):
        assert mjp.MJP(network, mjp.preset("paper", ape=True)).unwrap() is network


def test_jigsaw_pieces_are_patches_of_a_vit_and_sixteen_pixels_elsewhere() -> None:
    assert mjp.MJP(vit()).adapter.cell == (8, 8)
    assert mjp.MJP(swin(), mjp.variant("E")).adapter.cell == (16, 16)
    assert mjp.MJP(cnn(), mjp.variant("E")).adapter.cell == (16, 16)
    assert mjp.MJP(cnn(), mjp.variant("E", cell=32)).adapter.cell == (32, 32)


@pytest.mark.parametrize("make", [swin, cnn])
def test_a_training_step_without_positions_is_a_jigsaw_on_pixels(make: Make) -> None:
    model = mjp.MJP(make(), mjp.variant("E", ratio=0.5)).train()
    out = model(pictures())
    out.logits.sum().backward()
    assert out.plan.mask.sum(1).tolist() == [2] * 4
    assert out.dal.item() == 0
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("name", ["D", "F", "G", "H", "I", "J"])
def test_a_training_step_of_a_swin_with_ape_reaches_every_parameter(name: str) -> None:
    model = mjp.MJP(swin(), mjp.variant(name, ape=True)).train()
    out = model(pictures())
    (out.logits.square().sum() + out.dal).backward()
    assert [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_all_reasons_are_given_at_once() -> None:
    with pytest.raises(mjp.InputError, match=r"ResNet.*no position embeddings.*`ape` is for Swin"):
        mjp.MJP(cnn(), mjp.variant("J", ape=True))


def test_all_reasons_against_a_vit_are_given_at_once() -> None:
    with pytest.raises(mjp.InputError, match=r"its patch.*no position embeddings.*`ape` is for Swin"):
        mjp.MJP(vit(pos_embed="none"), mjp.variant("J", ape=True, cell=16))


def test_swin_without_ape_is_told_of_ape() -> None:
    with pytest.raises(mjp.InputError, match="ape=True"):
        mjp.MJP(swin(), mjp.variant("J"))


def test_swin_cell_must_be_a_multiple_of_its_patch() -> None:
    with pytest.raises(mjp.InputError, match=r"6 pixels is not a multiple of its patch \(4, 4\)"):
        mjp.MJP(swin(), mjp.variant("E", cell=6))


def test_convolutional_stems_are_refused() -> None:
    network = timm.create_model("vit_tiny_r_s16_p8_224", img_size=64, depth=1)
    with pytest.raises(mjp.InputError, match="patches overlap or pass a convolutional stem"):
        mjp.MJP(network, "private")


def test_subclasses_with_their_own_position_code_are_refused() -> None:
    class Different(timm.models.VisionTransformer):
        def _pos_embed(self, x: Tensor) -> Tensor:
            return x

    network = Different(**{**SMALL_VIT, "class_token": False, "global_pool": "avg"})
    with pytest.raises(mjp.InputError, match="Different adds its positions in its own way and needs its own adapter"):
        mjp.MJP(network, mjp.preset("paper"))


def test_plain_modules_are_refused() -> None:
    with pytest.raises(mjp.InputError, match="forward_features and forward_head"):
        mjp.MJP(nn.Linear(3, 3))


@pytest.mark.parametrize("thing", ["deit_small_patch16_224", None, 3])
def test_what_is_no_module_is_refused(thing: Any) -> None:
    with pytest.raises(mjp.InputError, match=r"not a torch module.*timm\.create_model"):
        mjp.MJP(thing, "paper")


def test_a_refused_model_is_left_as_it_was() -> None:
    network = vit(pos_embed="none")
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with pytest.raises(mjp.InputError):
        mjp.MJP(network, mjp.variant("J"))
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(p.requires_grad for p in network.parameters())
