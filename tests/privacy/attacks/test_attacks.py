"""What the closed forms recover, what they cannot, and what they refuse: random networks, real pictures."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from timm.models.vision_transformer import ParallelScalingBlock
from torch import Tensor

import mjp
import mjp.privacy.attacks as room
from clients import attack, normalise, pictures, prior, send, tiny
from mjp.common.errors import InputError
from mjp.method.config import variant
from mjp.method.model import MJP
from mjp.privacy.attacks import april, attacks, attacks_help, direct
from mjp.privacy.attacks.span import _mask, _off, _row_space, _tilt
from mjp.privacy.client.victim import Secret, make_update
from mjp.privacy.combination import parse
from mjp.privacy.metrics import psnr
from mjp.privacy.server.needs import NEEDS
from mjp.privacy.server.self_check import match, recover_labels
from mjp.privacy.server.view import Reconstruction, Refused, View
from mjp.privacy.update import Update

DISTILLED = "deit_tiny_distilled_patch16_224"
POOLED: dict[str, Any] = {"class_token": False, "global_pool": "avg"}


def decibels(found: Reconstruction, original: Tensor) -> float:
    return float(psnr(original, found.pictures[0].double()))


def shuffled(secret: Secret) -> Tensor:
    """x̃ in [0, 1]."""
    return replace(secret, images=pictures()).shuffled[0]


@pytest.mark.parametrize(("dtype", "least"), [(torch.float64, 100), (torch.float32, 50)])
@pytest.mark.parametrize("kind", ["plain", "distilled", "pooled", "wrapped"])
def test_direct_is_exact(kind: str, dtype: torch.dtype, least: float) -> None:
    model = {
        "plain": lambda: tiny(dtype=dtype),
        "distilled": lambda: tiny(DISTILLED, dtype=dtype),
        "pooled": lambda: tiny(dtype=dtype, **POOLED),
        "wrapped": lambda: MJP(tiny(dtype=dtype).unwrap(), variant("J")),
    }[kind]()
    network, update, _ = send(model)
    assert decibels(attack("direct", network, update), pictures()[0]) > least


@pytest.mark.parametrize("name", ["direct", "lattice"])
def test_a_patch_that_the_network_hardly_looks_at_is_not_taken_for_a_masked_one(name: str) -> None:
    model = MJP(tiny().unwrap(), variant("J"))
    network, update, _ = send(model)
    (table,) = (tensor for parameter, tensor in update.tensors.items() if parameter.endswith("pos_embed"))
    table[0, 5] *= 0.01  # far shorter than the others, though E_unk has no gradient
    view = View(update, network, prior())
    assert not bool(view.mask.any())
    assert attack(name, network, update).pictures.isfinite().all()


def test_zero_rows_with_no_gradient_of_the_unknown_embedding_are_refused_in_a_sentence() -> None:
    network, update, _ = send(tiny(), "mjp:0.25")
    update.tensors["unknown"].zero_()
    with pytest.raises(Refused, match="lacks the gradient of E_unk"):
        attack("subspace", network, update)


def test_direct_sees_a_jigsaw_without_masks_as_it_is() -> None:
    network, update, secret = send(tiny(), "jp:0.9")
    found = attack("direct", network, update)
    assert decibels(found, shuffled(secret)) > 100
    assert decibels(found, pictures()[0]) < 25


@pytest.mark.parametrize("defence", ["fedavg:1", "fedavg:5"])
def test_local_steps_on_one_picture_hide_nothing(defence: str) -> None:
    """Every step has the same patches: the sum of the gradients is one system for them."""
    network, update, _ = send(tiny(), defence)
    assert update.info.kind == "fedavg"
    found = attack("direct", network, update)
    assert decibels(found, pictures()[0]) > 100
    assert match(View(update, network, prior()), found.pictures) > 0.999
    assert match(View(update, network, prior()), pictures(start=5)) < 0.9


@pytest.mark.parametrize(
    ("name", "defence", "changes", "reason"),
    [
        ("direct", "withheld-pe", {}, "lacks the gradient of pos_embed"),
        ("direct", "no-pe", {}, "lacks the gradient of pos_embed"),
        ("direct", "mjp:0.25", {"patch_size": 4}, "none is left over"),
        ("direct", "batch:65", {}, "65 pictures"),
        ("span", "batch:2", {}, "2 pictures"),
        ("span", "no-pe", {}, "no position embeddings"),
        ("span", "none", {"patch_size": 4}, "nothing is left"),
        ("subspace", "none", {}, "no E_unk"),
        ("subspace", "mjp:0", {}, "nothing was masked"),
        ("subspace", "mjp:0.5+fedavg:2", {}, "several local steps"),
        ("subspace", "mjp:0.5+frozen-pe", {}, "lacks the gradient of pos_embed"),
        ("april", "none", {}, "has a LayerNorm"),
        ("jigsaw", "none", {}, "shuffles nothing"),
    ],
)
def test_refusals_say_why(name: str, defence: str, changes: dict[str, Any], reason: str) -> None:
    network, update, _ = send(tiny(**changes), defence)
    with pytest.raises(Refused, match=reason):
        attack(name, network, update)


@pytest.mark.parametrize("random_norm", [False, True])
@pytest.mark.parametrize("defence", ["withheld-pe", "frozen-pe"])
def test_span_needs_no_position_gradient(defence: str, random_norm: bool) -> None:
    model, generator = tiny(), torch.Generator().manual_seed(0)
    if random_norm:
        model.get_parameter("model.blocks.0.norm1.weight").data.normal_(1, 0.2, generator=generator)
        model.get_parameter("model.blocks.0.norm1.bias").data.normal_(std=0.2, generator=generator)
    network, update, _ = send(model, defence)
    assert "model.pos_embed" not in update.tensors
    assert decibels(attack("span", network, update), pictures()[0]) > 100


def test_span_finds_the_mask_although_the_gradients_are_withheld() -> None:
    network, update, secret = send(tiny(), "mjp:0.25+withheld-pe")
    view = View(update, network, prior())
    off = _off(view, 17)
    mixing = off(view.weight @ _row_space(view.projection, 16).T)
    assert torch.equal(_mask(view, mixing, off), secret.mask[0])
    assert attack("span", network, update).details["masked"] == 4


@pytest.mark.parametrize("noise", [1e-12, 1e-9, 1e-7])
def test_span_knows_how_far_the_span_of_the_tokens_is_off(noise: float) -> None:
    """Although a narrow network has no equations too many: the true tokens lie off the span as far as it says."""
    network, update, _ = send(tiny(embed_dim=32), "withheld-pe")
    name, generator = "model.blocks.0.attn.qkv.weight", torch.Generator().manual_seed(0)
    gradient = update.tensors[name]
    white = torch.randn(gradient.shape, generator=generator, dtype=gradient.dtype) * gradient.square().mean().sqrt()
    update = Update({**update.tensors, name: gradient + noise * white}, update.info)
    view = View(update, network, prior())
    true = _off(view, 17)(view.weight @ view.patches(pictures()[0]).T + (view.bias + view.table).T)
    assert 1 / 3 < _tilt(view) / float(true.square().mean().sqrt()) < 3
    guess = psnr(pictures()[0], prior().mean.clamp(0, 1))
    assert decibels(attack("span", network, update), pictures()[0]) > float(guess) + 2


def test_subspace_is_exact_for_one_masked_patch() -> None:
    network, update, secret = send(tiny(), "mjp:0.0625")
    assert int(secret.mask.sum()) == 1
    assert decibels(attack("subspace", network, update), pictures()[0]) > 100


@pytest.mark.parametrize("weight", [0.01, 100.0])
@pytest.mark.parametrize("ratio", [0.25, 0.5])
def test_subspace_misses_nothing_but_differences_of_masked_patches(ratio: float, weight: float) -> None:
    """Also under a heavy localization loss, whose part of the gradient is public and subtracted."""
    model = MJP(tiny().unwrap(), variant("J", ratio=ratio, localize_weight=weight)).double()
    network, update, secret = send(model, f"mjp:{ratio}")
    assert update.info.localize_weight == weight
    view = View(update, network, prior())
    mask = secret.mask[0]
    assert torch.equal(view.mask, mask)
    found = unclipped("subspace", view)
    true = view.patches(shuffled(secret))
    error = true - found
    masked = true[mask]
    span = torch.linalg.svd(masked[1:] - masked[0], full_matrices=False)[2]
    outside = error - error @ span.T @ span
    assert float(error.norm()) > 1e-2 * float(true.norm())  # those differences are missed indeed
    assert float(outside.norm()) < 1e-6 * float(true.norm())


def unclipped(name: str, view: View) -> Tensor:
    """X as an attack finds it, before it is clipped to what a picture can be."""
    seen: list[Tensor] = []
    keep = view.reconstruction

    def watch(patches: Tensor, **details: Any) -> Reconstruction:
        seen.append(patches)
        return keep(patches, **details)

    view.reconstruction = watch  # type: ignore[method-assign]
    attacks()[name].run(view)
    return seen[0]


def test_april_recovers_the_tokens_of_its_own_network() -> None:
    _expect_tokens(tiny())


@pytest.mark.parametrize("registers", [0, 2])
def test_april_knows_tokens_without_positions(registers: int) -> None:
    """The rows of A that the position table lacks are the gradients of those tokens."""
    _expect_tokens(tiny("vit_tiny_patch16_224", no_embed_class=True, reg_tokens=registers))


def test_patches_that_the_network_hardly_looks_at_are_not_taken_for_masked_ones() -> None:
    """Nobody used E_unk, so the localization loss is subtracted without a mask, however short some rows are."""
    model = mjp.load("mini-cifar10-mjp")
    label = int(model(normalise(pictures(start=2)).float()).argmax())  # certain, so most rows are nearly zero
    network, update, _ = send(model, start=2, labels=[label])
    view = View(update, network, prior())
    norms = view.gradients["pos_embed"][0, 1:].norm(dim=1).sort().values
    assert (norms[1:] / norms[:-1]).max() > 3
    assert decibels(direct.run(view), pictures(start=2)[0]) > 100


def test_april_leaves_the_localization_loss_out() -> None:
    """Its part in the gradient of the position table is public, and no part of A."""
    model = MJP(tiny().unwrap(), variant("J", localize_weight=1.0)).double()
    assert model.localizer is not None
    _expect_tokens(model)


def _expect_tokens(model: MJP) -> None:
    network, update, secret = send(april.network(model))
    tokens, _ = april.recover_tokens(View(update, network, prior()))
    vit: Any = network.model
    with torch.no_grad():
        expected = vit._pos_embed(vit.patch_embed(secret.images))[0]
    error = (tokens - expected)[vit.num_prefix_tokens :]  # registers start alike: hard to tell apart, and public
    assert float(error.norm() / expected.norm()) < 1e-6


def test_april_refuses_networks_that_it_is_not_for() -> None:
    other_block, other_norm = tiny(block_fn=ParallelScalingBlock), tiny()
    other_norm.model.norm_pre = torch.nn.LayerNorm(64, dtype=torch.float64)
    for model in (other_block, other_norm):
        network, update, _ = send(april.network(model))
        with pytest.raises(Refused, match="right behind the position embeddings"):
            attack("april", network, update)


@pytest.mark.parametrize("labels", [[7], [3, 3, 8, 3], [0, 1, 2, 2]])
@pytest.mark.parametrize("bias", [True, False])
def test_labels_are_in_the_gradient_of_the_classifier(labels: list[int], bias: bool) -> None:
    network, update, _ = send(tiny(), f"batch:{len(labels)}", labels=labels)
    if not bias:
        update = Update({k: g for k, g in update.tensors.items() if k != "model.head.bias"}, update.info)
    view = View(update, network, prior())
    if bias or len(labels) == 1:
        assert sorted(recover_labels(view).tolist()) == sorted(labels)
    else:
        with pytest.raises(Refused, match=r"head\.bias"):
            recover_labels(view)


def test_the_jigsaw_attack_undoes_a_jigsaw_without_masks() -> None:
    """A picture whose borders fit at one place only: a smooth field of colours."""
    y, x = torch.meshgrid(*(torch.linspace(0, 1, 32, dtype=torch.float64) for _ in range(2)), indexing="ij")
    picture = torch.stack([0.1 + 0.8 * x, 0.1 + 0.8 * y, 0.5 + 0.3 * torch.sin(3 * x + 5 * y)])
    model, defence = tiny(), parse("jp:1")
    network, sent, _ = send(model, defence.text)
    mean, std = (picture.new_tensor(v).view(-1, 1, 1) for v in (sent.info.mean, sent.info.std))
    images, generator = ((picture - mean) / std).unsqueeze(0), torch.Generator().manual_seed(1)
    normalisation: dict[str, Any] = {"mean": sent.info.mean, "std": sent.info.std}
    update, _ = make_update(network, images, torch.tensor([4]), defence, generator=generator, **normalisation)
    assert decibels(attack("direct", network, update), picture) < 20
    found = attack("jigsaw", network, update)
    assert decibels(found, picture) > 60
    assert found.details["moved"] > 8


def test_a_new_file_is_a_new_attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'NAME = "grey-guess"\nTITLE = "always grey"\nHELP = "paints it grey"\nNEEDS = ()\n\n\ndef run(view): ...\n'
    (tmp_path / "grey.py").write_text(text)
    monkeypatch.setattr(room, "__path__", [*room.__path__, str(tmp_path)])
    attacks.cache_clear()
    try:
        assert attacks()["grey-guess"].TITLE == "always grey"
        assert "  grey-guess      paints it grey" in attacks_help()
        assert {"direct", "span", "subspace", "april", "jigsaw"} < attacks().keys()
    finally:
        attacks.cache_clear()
        sys.modules.pop(f"{room.__name__}.grey", None)


@pytest.mark.parametrize(
    ("name", "zero"),
    [("direct", "patch_embed.proj.weight"), ("direct", "pos_embed"), ("span", "blocks.0.attn.qkv.weight")],
)
def test_a_gradient_of_zeros_tells_nothing(name: str, zero: str) -> None:
    network, update, _ = send(tiny())
    tensors = {k: torch.zeros_like(g) if k.endswith(zero) else g for k, g in update.tensors.items()}
    with pytest.raises(Refused, match="zero"):
        attack(name, network, Update(tensors, update.info))


def test_every_attack_says_what_it_is_and_needs() -> None:
    for name, module in attacks().items():
        assert f"  {name} " in attacks_help()
        assert module.TITLE
        assert set(module.NEEDS) <= NEEDS.keys()


def test_a_defence_that_means_nothing_is_refused() -> None:
    network, update, _ = send(tiny())
    with pytest.raises(InputError, match="unknown defence 'hope'"):
        View(Update(update.tensors, replace(update.info, defence="hope")), network, prior())


def test_an_attack_sees_only_the_size_that_fits_the_model() -> None:
    network, update, _ = send(tiny())
    with pytest.raises(Refused, match="grid"):
        View(Update(update.tensors, replace(update.info, size=(64, 64))), network, prior())


@pytest.mark.parametrize("name", ["J", "I"])
def test_clipping_alone_hides_nothing_of_a_model_with_a_localization_loss(name: str) -> None:
    """The gradient of the localization loss is shortened with the rest, and known only once that factor is."""
    model = MJP(tiny().unwrap(), variant(name, localize_weight=1.0))
    for defence in ("none", "noise:1e-9", "dp:0"):
        network, update, _ = send(model, defence)
        norm = torch.stack([tensor.norm() for tensor in update.tensors.values()]).norm()
        assert norm > 2 if defence == "none" else norm == pytest.approx(1, rel=1e-6)
        found = attack("direct", network, update).pictures
        assert float((found - pictures()).abs().max()) < 1e-3, defence


@pytest.mark.parametrize("scale", [1e-3, 3.0, 65536.0])
def test_the_scale_of_the_loss_hides_nothing_of_a_model_with_a_localization_loss(scale: float) -> None:
    """A summed loss, or the loss scale of mixed precision, enlarges the known gradient of the localization too."""
    network, update, _ = send(MJP(tiny().unwrap(), variant("J", localize_weight=1.0)))
    scaled = replace(update, tensors={name: scale * tensor for name, tensor in update.tensors.items()})
    found = attack("direct", network, scaled).pictures
    assert float((found - pictures()).abs().max()) < 1e-3
