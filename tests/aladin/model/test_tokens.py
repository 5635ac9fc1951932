"""One token type from every kind of backbone, and the order of patches under E_unk that nobody may notice."""

import pytest
import timm
import torch

import mjp
from aladin.tiny import generator, noise, tiny_model
from method.tiny import cnn, half_masked, pictures, swin, vit
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.alignment import align
from mjp.aladin.model.tokens import Tokens, canonical_order, grid_tokens, vision_tokens
from mjp.aladin.model.vision import Vision
from mjp.common.errors import InputError


def test_a_vit_gives_its_class_token_and_its_patches() -> None:
    model = vit()
    found = vision_tokens(model, pictures())
    features = model.forward_features(pictures())
    assert torch.equal(found.cls, features[:, 0])
    assert torch.equal(found.patches, features[:, 1:])
    assert found.valid.all()
    assert not found.unknown.any()


def test_prefix_tokens_are_no_patches() -> None:
    found = vision_tokens(vit("deit_small_distilled_patch16_224"), pictures())
    assert found.patches.shape == (4, 16, 48)


def test_without_a_class_token_it_is_the_mean() -> None:
    found = vision_tokens(vit(class_token=False, global_pool="avg"), pictures())
    assert found.patches.shape[1] == 16
    torch.testing.assert_close(found.cls, found.patches.mean(1))


def test_a_convolutional_network_gives_its_grid() -> None:
    model = cnn()
    features = model.forward_features(pictures())
    found = vision_tokens(model, pictures())
    assert torch.equal(found.patches[:, 0], features[:, :, 0, 0])  # the first cell is there
    torch.testing.assert_close(found.cls, features.mean((2, 3)))


def test_a_feature_grid_is_read_row_by_row() -> None:
    features = torch.arange(6.0).view(1, 1, 2, 3)
    assert grid_tokens(features).patches[0, :, 0].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("build", [vit, swin, cnn])
def test_wrapped_and_without_a_plan_it_is_the_plain_model(build: type) -> None:
    model = build()
    wrapped = mjp.MJP(model, mjp.variant("A")).eval()
    plain, found = vision_tokens(model, pictures()), vision_tokens(wrapped, pictures())
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))


def test_under_a_plan_the_masked_slots_are_unknown() -> None:
    plan = half_masked()
    found = vision_tokens(mjp.MJP(vit(), "paper").eval(), pictures(), plan)
    assert torch.equal(found.unknown, plan.mask)


def test_kept_positions_are_not_unknown() -> None:
    kept = vision_tokens(mjp.MJP(vit(), mjp.variant("E")).eval(), pictures(), half_masked())
    shuffled = vision_tokens(mjp.MJP(cnn(), mjp.variant("E")).eval(), pictures(), half_masked(grid=(2, 2)))
    assert not kept.unknown.any()
    assert not shuffled.unknown.any()


def test_a_swin_token_is_unknown_if_any_of_its_pieces_is() -> None:
    model = mjp.MJP(swin(), mjp.MJPConfig(ape=True, cell=4, localize="none")).eval()
    plan = mjp.plan_from_mask(torch.eye(64, dtype=torch.bool)[:4], (8, 8), generator=generator())
    found = vision_tokens(model, pictures(), plan)
    assert found.patches.shape[1] == 16
    assert found.unknown.nonzero().tolist() == [[0, 0], [1, 0], [2, 1], [3, 1]]


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(InputError, match=r"wrap this VisionTransformer in mjp\.MJP"):
        vision_tokens(vit(), pictures(), half_masked())
    with pytest.raises(InputError, match="timm model"):
        vision_tokens(torch.nn.Linear(2, 2), pictures())
    with pytest.raises(InputError, match="eval"):
        vision_tokens(mjp.MJP(vit(), "paper").train(), pictures())


def other_order(plan: mjp.Plan, seed: int) -> mjp.Plan:
    """A plan that hides the same positions and shuffles the patches under them in another way."""
    again = mjp.plan_from_mask(plan.mask, plan.grid, generator=generator(seed))
    assert not torch.equal(again.permutation, plan.permutation)
    return again


def retriever() -> tuple[mjp.MJP, Aladin]:
    """A tiny MJP-wrapped ViT, and a retrieval model on its tokens."""
    backbone = mjp.MJP(vit(), "paper").eval()
    small = tiny_model()
    assert small.pieces is not None
    return backbone, Aladin(small.config, {}, 48, small.pieces).eval()


def test_the_order_of_patches_under_e_unk_changes_neither_vector_nor_alignment() -> None:
    backbone, model = retriever()
    plan = half_masked(ratio=0.75)
    texts = model.encode_texts(["a red dog", "the beach"])
    codes = [model.codes(vision_tokens(backbone, pictures(), p)) for p in (plan, other_order(plan, 5))]
    assert not torch.allclose(codes[0].tokens, codes[1].tokens, atol=1e-3)  # the tokens themselves did change places
    assert (codes[0].vector - codes[1].vector).abs().max() < 1e-5
    assert (model.alignment(codes[0], texts) - model.alignment(codes[1], texts)).abs().max() < 1e-5


def test_codes_under_a_plan_are_stored_in_an_order_that_does_not_leak() -> None:
    backbone, model = retriever()
    model.__dict__["vision"] = Vision("tiny", backbone, (32, 32), (0.5,) * 3, (0.5,) * 3)
    plan = half_masked(ratio=0.75)
    first, second = (model.encode_pictures(pictures(), p) for p in (plan, other_order(plan, 5)))
    torch.testing.assert_close(first.tokens, second.tokens, atol=1e-5, rtol=0)
    assert torch.equal(first.unknown, plan.mask)


def test_with_positions_kept_the_order_is_noticed() -> None:
    """The test above would pass for a model that does not look at positions at all: this one does."""
    _, model = retriever()
    keeping, plan = mjp.MJP(vit(), mjp.variant("E")).eval(), half_masked(ratio=0.75)
    codes = [model.codes(vision_tokens(keeping, pictures(), p)) for p in (plan, other_order(plan, 5))]
    assert (codes[0].vector - codes[1].vector).abs().max() > 1e-4


def test_canonical_order_is_the_same_for_every_order_of_unknown_patches() -> None:
    patches, valid = noise(3, 8, 4), torch.ones(3, 8, dtype=torch.bool)
    unknown = torch.rand(3, 8, generator=generator()) < 0.6
    given = Tokens(patches.mean(1), patches, valid, unknown)
    moved = patches.clone()
    for row in range(3):
        slots = unknown[row].nonzero()[:, 0]
        moved[row, slots] = patches[row, slots.flip(0)]
    first, second = canonical_order(given), canonical_order(given._replace(patches=moved))
    assert torch.equal(first.patches, second.patches)
    assert torch.equal(first.patches[~unknown], patches[~unknown])  # the others stay
    everything = torch.ones(3, 4, dtype=torch.bool)
    words = noise(3, 4, 4, seed=2)
    torch.testing.assert_close(align(first.patches, valid, words, everything), align(patches, valid, words, everything))


def test_any_timm_model_with_features_will_do() -> None:
    found = vision_tokens(timm.create_model("test_efficientnet").eval(), pictures(2, 64))
    assert found.patches.shape[:2] == (2, 4)
