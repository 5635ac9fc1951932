"""UPerNet's encoder computes what the backbone computes, whatever the weights came from; what cannot be is refused."""

import sys
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

import mjp
from mjp.segmentation.network import build_network, load_backbone
from segmentation.scenes import TINY_SWIN, settings

SWIN = "swin_tiny_patch4_window7_224"
ARGUMENTS = {"embed_dim": 16, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 2, 2), "window_size": 2, "img_size": 64}


def swin(**changes: Any) -> Any:
    return timm.create_model(SWIN, num_classes=5, **{**ARGUMENTS, **changes})


def network(tmp_path: Path, **changes: Any) -> Any:
    config = settings(tmp_path, tmp_path / "out", **changes)
    backbone = load_backbone(config)
    return build_network(backbone, classes=3, crop=64, decoder_channels=16, drop_path=0.0).eval()


def features(model: Any, images: Tensor) -> list[Tensor]:
    """The outputs of a Swin's stages, (B, D, h, w)."""
    tokens = model.patch_embed(images)
    outputs = []
    for stage in model.layers:
        tokens = stage(tokens)
        outputs.append(tokens.permute(0, 3, 1, 2))
    return outputs


def assert_same(encoder_output: list[Tensor], expected: list[Tensor]) -> None:
    for ours, theirs in zip(encoder_output[2:], expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_weights_from_a_file_reach_the_encoder(tmp_path: Path) -> None:
    model = swin().eval()
    model.set_input_size(img_size=(64, 64), window_size=(2, 2), always_partition=True)
    save_file(model.state_dict(), tmp_path / "swin.safetensors")
    built = network(tmp_path, checkpoint=tmp_path / "swin.safetensors")
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert_same(built.encoder(images), features(model, images))
        assert built(images).shape == (2, 3, 64, 64)
        assert built(images[..., :32]).shape == (2, 3, 64, 32)


def test_a_folder_names_its_model_and_its_absolute_positions_count(tmp_path: Path) -> None:
    """With `ape` the tokens of the patch embedding get MJP's position table, as in classification."""
    wrapped = mjp.MJP(swin(), mjp.preset("paper", ape=True)).eval()
    torch.nn.init.normal_(wrapped.get_parameter("pos_embed"), generator=torch.Generator().manual_seed(1))
    wrapped.save_pretrained(tmp_path / "run" / "model")
    built = network(tmp_path, checkpoint=tmp_path / "run", model=None, model_kwargs=())
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    table = wrapped.get_parameter("pos_embed").detach()
    with torch.no_grad():
        tokens = built.encoder.model["patch_embed"](images)
        expected = wrapped.model.patch_embed(images) + table.view(1, 16, 16, 16)  # type: ignore[operator]
        assert torch.allclose(tokens, expected, atol=1e-6)
        assert built(images[..., :32]).shape == (2, 3, 64, 32)  # the table is resampled


def test_the_jigsaw_is_off(tmp_path: Path) -> None:
    """In train mode too, the encoder of an MJP backbone is a plain function of the picture."""
    wrapped = mjp.MJP(swin(), mjp.preset("paper", ape=True, ratio=0.9))
    wrapped.save_pretrained(tmp_path / "model")
    built = network(tmp_path, checkpoint=tmp_path / "model", model=None, model_kwargs=()).train()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        first, second = (built.encoder(images)[-1] for _ in range(2))
    assert torch.equal(first, second)


def test_small_patches_and_windows_grow(tmp_path: Path) -> None:
    """A Swin for 32 px with patches of 2 and shrunken windows in its last stage."""
    wrapped = mjp.MJP(swin(img_size=32, patch_size=2, window_size=4), mjp.variant("E"))
    wrapped.save_pretrained(tmp_path / "model")
    built = network(tmp_path, checkpoint=tmp_path / "model", model=None, model_kwargs=())
    with torch.no_grad():
        assert built(torch.zeros(1, 3, 64, 96)).shape == (1, 3, 64, 96)
    tables = {name: t.shape[0] for name, t in built.encoder.state_dict().items() if name.endswith("bias_table")}
    assert set(tables.values()) == {49}  # windows of 4 everywhere


@pytest.mark.parametrize("name", ["test_resnet", "test_convnext", "swinv2_tiny_window8_256"])
def test_other_families(name: str, tmp_path: Path) -> None:
    arguments = tuple(text for text in TINY_SWIN if not text.startswith("img_size")) if "swin" in name else ()
    built = network(tmp_path, model=name, model_kwargs=arguments)
    with torch.no_grad():
        assert built(torch.zeros(1, 3, 64, 96)).shape == (1, 3, 64, 96)


def test_random_weights_follow_the_seed(tmp_path: Path) -> None:
    first, again, other = (network(tmp_path, seed=seed).encoder.state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "one scale": ({"model": "vit_tiny_patch16_224", "model_kwargs": ()}, "UPerNet cannot use vit_tiny.*several scales"),
    "unknown": ({"model": "swin_huge"}, "timm has no model 'swin_huge'"),
    "no file": ({"checkpoint": Path("nowhere.safetensors")}, r"there is no file of weights nowhere\.safetensors"),
    "argument": ({"model_kwargs": ("depths",)}, "name=value"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_built_is_refused_in_a_sentence(kind: str, tmp_path: Path) -> None:
    changes, message = REFUSED[kind]
    with pytest.raises(mjp.InputError, match=message) as refusal:
        network(tmp_path, **changes)
    assert "\n" not in str(refusal.value)


def test_the_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "segmentation_models_pytorch", None)
    with pytest.raises(mjp.InputError, match=r"pip install 'mjp\[segment\]'"):
        network(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    save_file(swin(embed_dim=32).state_dict(), tmp_path / "other.safetensors")
    with pytest.raises(mjp.InputError, match="the weights are of another model"):
        network(tmp_path, checkpoint=tmp_path / "other.safetensors")


def test_a_folder_and_another_name_contradict_each_other(tmp_path: Path) -> None:
    mjp.MJP(swin(), mjp.variant("E")).save_pretrained(tmp_path / "model")
    with pytest.raises(mjp.InputError, match="leave --model out"):
        network(tmp_path, checkpoint=tmp_path / "model", model="resnet18", model_kwargs=())
