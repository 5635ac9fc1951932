"""Saving and loading: the same model, or a clear error and nothing half-done."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import mjp
from method.tiny import cnn, half_masked, pictures, swin, vit
from mjp.method import hub

MODELS: dict[str, Callable[[], mjp.MJP]] = {
    "vit": lambda: mjp.MJP(vit("deit_tiny_patch16_224"), mjp.preset("private", min_block=3)),
    "index": lambda: mjp.MJP(vit("deit_tiny_patch16_224"), mjp.variant("F")),
    "distilled": lambda: mjp.MJP(vit("deit_tiny_distilled_patch16_224"), "paper"),
    "oblong": lambda: mjp.MJP(vit("deit_tiny_patch16_224", img_size=(32, 16)), "paper"),
    "no class token": lambda: mjp.MJP(vit("vit_tiny_patch16_224", class_token=False, global_pool="avg"), "paper"),
    "without positions": lambda: mjp.MJP(vit("vit_tiny_patch16_224", pos_embed="none"), mjp.variant("E")),
    "swin": lambda: mjp.MJP(stock_swin(), mjp.preset("paper", ape=True, aspect=(0.5, 2.0))),
    "cnn": lambda: mjp.MJP(cnn(), mjp.variant("E", sampler="reference", start_epoch=20)),
}


def stock_swin() -> Any:
    return swin("swin_tiny_patch4_window7_224", embed_dim=24)


def saved(kind: str, folder: Path) -> mjp.MJP:
    model = MODELS[kind]().eval()
    if kind == "index":
        torch.nn.init.normal_(model.get_parameter("index"))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", MODELS)
def test_round_trip_keeps_weights_config_and_function(kind: str, tmp_path: Path) -> None:
    model = saved(kind, tmp_path)
    again = mjp.MJP.from_pretrained(tmp_path).eval()
    weights = again.weights()
    assert weights.keys() == model.weights().keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.weights().items())
    assert again.config == model.config
    size = (32, 16) if kind == "oblong" else (32, 32)
    assert torch.allclose(again(pictures(2, *size)), model(pictures(2, *size)), atol=1e-6)


def test_round_trip_keeps_the_function_under_a_plan(tmp_path: Path) -> None:
    model = saved("vit", tmp_path)
    again = mjp.MJP.from_pretrained(tmp_path).eval()
    plan = half_masked(2)
    assert torch.allclose(again(pictures(2), plan).logits, model(pictures(2), plan).logits, atol=1e-6)


def test_number_of_heads_survives_although_no_weight_shows_it(tmp_path: Path) -> None:
    model = mjp.MJP(vit("deit_tiny_patch16_224", num_heads=4), "paper").eval()
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_args"]["num_heads"] == 4
    again = mjp.MJP.from_pretrained(tmp_path).eval()
    assert torch.allclose(again(pictures(2)), model(pictures(2)), atol=1e-6)


def test_folder_holds_config_weights_and_card_and_nothing_else(tmp_path: Path) -> None:
    saved("vit", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]


def test_an_existing_card_is_kept(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    saved("vit", tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_saving_leaves_the_mode_of_the_model_alone(tmp_path: Path) -> None:
    model = MODELS["vit"]().train()
    model.save_pretrained(tmp_path)
    assert model.training
    assert model.unwrap().training


# --- what cannot be saved ---------------------------------------------------------------------------------------------


def test_a_recipe_that_cannot_be_read_off_is_refused_with_advice(tmp_path: Path) -> None:
    """qk_norm adds weights that no known argument explains."""
    model = mjp.MJP(vit("deit_tiny_patch16_224", qk_norm=True), "paper").eval()
    with pytest.raises(mjp.InputError, match=r"deit_tiny_patch16_224.*pass model_args="):
        model.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_advice_works(tmp_path: Path) -> None:
    network = vit("deit_tiny_patch16_224", qk_norm=True)
    model = mjp.MJP(network, "paper").eval()
    arguments = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 48, "num_heads": 3, "num_classes": 10}
    model.save_pretrained(tmp_path, model_args={**arguments, "qk_norm": True})
    assert torch.allclose(mjp.MJP.from_pretrained(tmp_path).eval()(pictures(2)), model(pictures(2)), atol=1e-6)


def test_a_function_that_the_weights_do_not_show_is_refused(tmp_path: Path) -> None:
    """Another activation function has the same weights: only running the model tells."""
    model = mjp.MJP(vit("deit_tiny_patch16_224", act_layer="relu"), "paper").eval()
    with pytest.raises(mjp.InputError, match="pass model_args="):
        model.save_pretrained(tmp_path)


def test_wrong_model_args_are_refused(tmp_path: Path) -> None:
    with pytest.raises(mjp.InputError, match="is not this model"):
        MODELS["vit"]().save_pretrained(tmp_path, model_args={"depth": 3})


def test_a_model_without_a_timm_name_is_refused(tmp_path: Path) -> None:
    model = MODELS["vit"]()
    model.unwrap().pretrained_cfg = {}  # type: ignore[assignment]
    with pytest.raises(mjp.InputError, match=r"create it with timm\.create_model"):
        model.save_pretrained(tmp_path)


# --- failures half-way ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [0, 10])
def test_a_failing_save_leaves_the_old_files(written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved("vit", tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(weights: Any, path: Path, **options: Any) -> None:
        Path(path).write_bytes(b"x" * written)
        raise OSError("disk full")

    monkeypatch.setattr(hub, "save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        saved("distilled", tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# --- what cannot be loaded --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    saved("vit", tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(mjp.InputError, match=f"{name} is missing"):
        mjp.MJP.from_pretrained(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_truncated_weights_are_refused_by_name(share: float, tmp_path: Path) -> None:
    saved("vit", tmp_path)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(mjp.InputError, match=r"model\.safetensors"):
        mjp.MJP.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "content", ["{}", "[1]", '{"architecture": "deit_tiny_patch16_224"}', '{"model_type": "bert"}']
)
def test_a_foreign_config_is_refused(content: str, tmp_path: Path) -> None:
    saved("vit", tmp_path)
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(mjp.InputError, match=r"config\.json (does not describe an MJP model|must hold a JSON object)"):
        mjp.MJP.from_pretrained(tmp_path)


def test_a_broken_config_is_refused_by_name(tmp_path: Path) -> None:
    saved("vit", tmp_path)
    (tmp_path / "config.json").write_text('{"architecture": ')
    with pytest.raises(mjp.InputError, match=r"config\.json"):
        mjp.MJP.from_pretrained(tmp_path)


def test_weights_of_another_model_are_refused_by_name(tmp_path: Path) -> None:
    saved("distilled", tmp_path / "other")
    saved("vit", tmp_path / "one")
    (tmp_path / "one" / "model.safetensors").write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    with pytest.raises(mjp.InputError, match="dist_token"):
        mjp.MJP.from_pretrained(tmp_path / "one")


def test_weights_without_what_mjp_adds_are_refused_by_name(tmp_path: Path) -> None:
    """`load_state_dict` takes timm's file as it is; a saved model is complete or damaged."""
    model = saved("vit", tmp_path)
    save_file(dict(model.model.state_dict()), tmp_path / "model.safetensors")
    with pytest.raises(mjp.InputError, match=r"belongs to another model: only one of the two has "):
        mjp.MJP.from_pretrained(tmp_path)


def test_an_architecture_that_timm_does_not_know_is_refused_by_name(tmp_path: Path) -> None:
    saved("vit", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace("deit_tiny_patch16_224", "deit_huge_from_the_future"))
    with pytest.raises(mjp.InputError, match="deit_huge_from_the_future"):
        mjp.MJP.from_pretrained(tmp_path)


def test_a_setting_from_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    saved("vit", tmp_path)
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    content["mjp"]["swirl"] = 1
    path.write_text(json.dumps(content))
    with pytest.raises(mjp.InputError, match="swirl"):
        mjp.MJP.from_pretrained(tmp_path)


def test_a_repository_that_cannot_be_reached_is_named() -> None:
    with pytest.raises(mjp.InputError, match=r"nobody/no-such-model.*(connection|offline)"):
        mjp.MJP.from_pretrained("nobody/no-such-model")
