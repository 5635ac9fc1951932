"""Edges where the method could go wrong quietly: sizes, heads, presets, files from anywhere."""

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

import mjp
from method.tiny import SMALL_VIT, cnn, pictures, swin, vit


def crossvit() -> Any:
    return timm.create_model("crossvit_9_240")


@pytest.mark.parametrize("config", ["paper-privacy", None, mjp.variant("J"), mjp.variant("B")])
def test_positions_that_cannot_be_hidden_are_refused_not_dropped(config: Any) -> None:
    with pytest.raises(mjp.InputError, match=r"absolute positions \(pos_embed_0\), and it sees pictures on two grids"):
        mjp.MJP(crossvit(), config)


def test_a_preset_drops_nothing_for_other_reasons() -> None:
    with pytest.raises(mjp.InputError, match="leave `cell` unset"):
        mjp.MJP(vit(), mjp.preset("private", cell=4))


@pytest.mark.parametrize("config", ["private", None])
def test_a_preset_that_loses_its_positions_says_so(config: str | None) -> None:
    with pytest.warns(UserWarning, match="ResNet: it has no position embeddings.*only the jigsaw is left"):
        model = mjp.MJP(cnn(), config)
    assert model.config.position == "keep"


@pytest.mark.parametrize("name", ["mobilenetv4_conv_small", "test_resnet"])
def test_batch_statistics_are_those_of_timm_after_a_training_step(name: str) -> None:
    torch.manual_seed(0)
    plain: Any = timm.create_model(name, num_classes=10, drop_rate=0.0).train()
    wrapped = mjp.MJP(timm.create_model(name, num_classes=10, drop_rate=0.0), mjp.variant("A")).train()
    wrapped.unwrap().load_state_dict(plain.state_dict())
    images = pictures(4, 64)
    assert torch.equal(wrapped(images).logits, plain(images))
    assert all(torch.equal(a, b) for a, b in zip(wrapped.model.buffers(), plain.buffers(), strict=True))


@pytest.mark.parametrize("make", [vit, swin])
def test_features_are_what_the_classifier_saw_also_under_dropout(make: Any) -> None:
    model = mjp.MJP(make(drop_rate=0.5), mjp.variant("E")).train()
    out = model(pictures())
    inner: Any = model.model
    classifier = inner.head if isinstance(inner.head, nn.Linear) else inner.head.fc
    assert torch.equal(classifier(out.features), out.logits)


@pytest.mark.parametrize("name", ["A", "G", "H", "I", "J"])
def test_wrapping_leaves_the_global_random_state_alone(name: str) -> None:
    network = vit()
    before = torch.get_rng_state()
    mjp.MJP(network, mjp.variant(name))
    assert torch.equal(torch.get_rng_state(), before)


def test_saving_leaves_random_state_and_modes_alone(tmp_path: Path) -> None:
    model = mjp.MJP(cnn(), mjp.variant("E")).train()
    frozen = next(module for module in model.modules() if isinstance(module, nn.BatchNorm2d))
    frozen.eval()
    before = torch.get_rng_state()
    model.save_pretrained(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert not frozen.training
    assert model.training


@pytest.mark.parametrize("name", ["F", "G", "J"])
def test_a_new_input_size_is_followed(name: str) -> None:
    model = mjp.MJP(vit(), mjp.variant(name, ratio=0.3))
    if model.index is not None:
        nn.init.normal_(model.index)
    inner: Any = model.model
    inner.set_input_size((48, 64))
    out = model.train()(pictures(2, 48, 64))
    assert out.logits.shape == (2, 10)
    alone = model.eval()(pictures(2, 48, 64))
    assert torch.allclose(model.unwrap()(pictures(2, 48, 64)), alone, atol=1e-5)


def test_a_swin_with_absolute_positions_follows_a_new_input_size() -> None:
    model = mjp.MJP(swin(), mjp.variant("J", ape=True, ratio=0.3))
    inner: Any = model.model
    inner.set_input_size((64, 64), window_size=(4, 4))
    assert model.train()(pictures(2, 64)).logits.shape == (2, 10)


SWIN_ARGS = {
    "img_size": 64,
    "window_size": 4,
    "embed_dim": 24,
    "depths": (1, 1),
    "num_heads": (2, 4),
    "num_classes": 10,
}


@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("kind", ["index", "swin"])
def test_a_model_with_a_new_input_size_can_be_saved(kind: str, inner: bool, tmp_path: Path) -> None:
    """The size may be set on the wrapper or on the timm model in it."""
    network = vit("deit_tiny_patch16_224") if kind == "index" else swin()
    model = mjp.MJP(network, mjp.variant("F") if kind == "index" else mjp.variant("J", ape=True)).eval()
    nn.init.normal_(model.get_parameter("index" if kind == "index" else "pos_embed"))
    target: Any = model.model if inner else model
    target.set_input_size((64, 64), **({"window_size": (4, 4)} if kind == "swin" else {}))
    model.save_pretrained(tmp_path, model_args=SWIN_ARGS if kind == "swin" else None)
    loaded = mjp.MJP.from_pretrained(tmp_path).eval()
    assert torch.allclose(loaded(pictures(2, 64)), model(pictures(2, 64)), atol=1e-5)
    assert inner or loaded.state_dict().keys() == model.state_dict().keys()


@pytest.mark.parametrize("name", ["C", "E", "F", "J"])
@pytest.mark.parametrize("size", [(30, 45), (33, 17), (32, 32)])
def test_padding_to_whole_patches_works_in_training_too(name: str, size: tuple[int, int]) -> None:
    network = vit(dynamic_img_size=True, dynamic_img_pad=True)
    model, images = mjp.MJP(network, mjp.variant(name, ratio=0.5)), pictures(2, *size)
    grid = (-(-size[0] // 8), -(-size[1] // 8))
    assert model.grid(images) == grid
    assert torch.equal(model.eval()(images, mjp.identity_plan(2, grid)).logits, network(images))
    out = model.train()(images)
    out.logits.square().sum().backward()
    assert out.plan.grid == grid
    assert out.plan.mask.any()


def test_a_padded_model_comes_back(tmp_path: Path) -> None:
    network = vit("deit_tiny_patch16_224", dynamic_img_size=True, dynamic_img_pad=True)
    mjp.MJP(network, "paper").save_pretrained(tmp_path)
    assert torch.allclose(
        mjp.MJP.from_pretrained(tmp_path).eval()(pictures(2, 30)), network(pictures(2, 30)), atol=1e-5
    )


def test_variant_b_stays_without_positions_when_weights_are_loaded() -> None:
    stock = timm.create_model("deit_small_patch16_224", **SMALL_VIT)
    model = copy.deepcopy(mjp.MJP(vit(), mjp.variant("B")))
    for part in (model, model.model):
        part.load_state_dict(stock.state_dict())
        assert not model.model.get_parameter("pos_embed").any()
    network = model.unwrap()
    network.load_state_dict(stock.state_dict())  # and is timm's own once it is unwrapped
    assert torch.equal(network.get_parameter("pos_embed"), stock.get_parameter("pos_embed"))


def test_a_double_model_comes_back_double(tmp_path: Path) -> None:
    mjp.MJP(vit("deit_tiny_patch16_224"), "paper").double().save_pretrained(tmp_path)
    loaded = mjp.MJP.from_pretrained(tmp_path)
    assert {p.dtype for p in loaded.parameters()} == {torch.float64}


def test_an_activation_behind_a_zero_head_is_noticed(tmp_path: Path) -> None:
    network: Any = timm.create_model("deit_tiny_patch16_224", **SMALL_VIT, act_layer="relu")
    nn.init.zeros_(network.head.weight)
    with pytest.raises(mjp.InputError, match="pass model_args"):
        mjp.MJP(network, "paper").save_pretrained(tmp_path)


FOREIGN = ("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir", "features_only")


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"architecture": "hf-hub:someone/something"}, "names the model 'hf-hub:someone/something'"),
        ({"architecture": 3}, "names the model 3, which"),
        ({"architecture": "x" * 10**6}, "names the model 'xxx"),
        *(({"model_args": {name: {}}}, f"asks timm to load files by {name}: it may not") for name in FOREIGN),
        ({"model_args": []}, "does not describe an MJP model"),
        ({"model_args": {"embed_dim": 7}}, "timm cannot create the model"),
        ({"model_args": {"num_heads": 0}}, "timm cannot create the model"),
        ({"model_args": {"depth": -1}}, "timm cannot create the model|belongs to another model|must lie between"),
        ({"model_args": {"patch_size": 0}}, "timm cannot create the model"),
        ({"mjp": []}, "MJP settings must be names with values"),
        ({"mjp": {"ratio": "x"}}, "ratio must lie between 0 and 1"),
        ({"mjp": {"aspect": 3}}, "aspect must be two numbers"),
        ({"classes": [1, 2]}, "classes must be a list of names"),
    ],
)
def test_a_config_file_from_anywhere_is_looked_at_before_it_is_used(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    mjp.MJP(vit("deit_tiny_patch16_224"), "paper").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(mjp.InputError, match=sentence) as refusal:
        mjp.MJP.from_pretrained(tmp_path)
    assert len(str(refusal.value)) < 1000
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "text", ['{"architecture": ' + nested(100_000) + "}", '{"mjp": ' + "7" * 5000 + "}", "\x00", ""]
)
def test_json_that_cannot_be_read_is_one_sentence(tmp_path: Path, text: str) -> None:
    mjp.MJP(vit("deit_tiny_patch16_224"), "paper").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(mjp.InputError, match=r"config\.json is not valid JSON.*save the model again") as refusal:
        mjp.MJP.from_pretrained(tmp_path)
    assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize("every", [True, False])
def test_eight_bit_weights_are_refused(tmp_path: Path, every: bool) -> None:
    model = mjp.MJP(vit("deit_tiny_patch16_224"), "paper")
    model.save_pretrained(tmp_path)
    weights = {
        n: t.detach().to(torch.float8_e4m3fn) if every or n == "unknown" else t for n, t in model.weights().items()
    }
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(mjp.InputError, match=r"is of type float8_e4m3fn, which is not supported"):
        mjp.MJP.from_pretrained(tmp_path)


def test_unknown_keywords_are_refused(tmp_path: Path) -> None:
    model = mjp.MJP(vit("deit_tiny_patch16_224"), "paper")
    with pytest.raises(mjp.InputError, match="does not know foo"):
        model.save_pretrained(tmp_path, foo=1)
    model.save_pretrained(tmp_path)
    with pytest.raises(mjp.InputError, match="does not know foo"):
        mjp.MJP.from_pretrained(tmp_path, foo=1)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"ratio": "0.3"}, "ratio"),
        ({"min_block": "8"}, "min_block"),
        ({"min_block": 2.5}, "min_block"),
        ({"cell": 1.5}, "cell"),
        ({"probability": None}, "probability"),
        ({"seed": "a"}, "seed"),
        ({"seed": 2**70}, "seed"),
        ({"shared": "yes"}, "shared"),
        ({"start_epoch": 1.5}, "start_epoch"),
    ],
)
def test_settings_of_the_wrong_kind_are_refused_by_name(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(mjp.InputError, match=names):
        mjp.variant("J", **changes)


@pytest.mark.parametrize("config", [{"ratio": 0.3}, ["paper"], 3])
def test_what_is_no_configuration_is_refused(config: Any) -> None:
    with pytest.raises(mjp.InputError, match="config must be an MJPConfig or the name of a preset"):
        mjp.MJP(vit(), config)


def test_spp_leaves_a_batch_alone_when_it_is_inactive() -> None:
    model = mjp.MJP(vit(), mjp.variant("C", probability=0.0)).train()
    images = pictures()
    plan = model.sample_plan(images)
    assert torch.equal(mjp.shuffle_image(images, plan, 8), images)


def test_a_piece_that_cuts_the_stride_of_a_network_is_refused() -> None:
    with pytest.raises(mjp.InputError, match="multiple of its first stride"):
        mjp.MJP(cnn(), mjp.variant("E", cell=5))


def test_no_gradient_per_image_with_batch_normalisation() -> None:
    with pytest.raises(mjp.InputError, match="batch normalisation"):
        mjp.per_sample_gradients(mjp.MJP(cnn(), mjp.variant("E")), pictures(2), torch.tensor([0, 1]))


def test_labels_are_counted() -> None:
    with pytest.raises(mjp.InputError, match="3 labels for 2 images"):
        mjp.per_sample_gradients(mjp.MJP(vit(), "paper"), pictures(2), torch.tensor([0, 1, 2]))


def test_an_unknown_localization_head_is_refused() -> None:
    with pytest.raises(mjp.InputError, match="kind must be one of ln, nln, pca"):
        mjp.Localizer(4, "foo", generator=torch.Generator())  # type: ignore[arg-type]


def test_weights_without_numbers_are_refused(tmp_path: Path) -> None:
    mjp.MJP(vit("deit_tiny_patch16_224"), "paper").save_pretrained(tmp_path)
    save_file({"nothing": torch.zeros(1, dtype=torch.int64)}, tmp_path / "model.safetensors")
    with pytest.raises(mjp.InputError, match=r"holds 1$"):
        mjp.MJP.from_pretrained(tmp_path)


def test_what_is_pushed_to_the_hub_is_what_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded: list[str] = []

    class Hub:
        def __init__(self, **_: Any) -> None: ...

        def create_repo(self, repo_id: str, **_: Any) -> Any:
            return SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, repo_id: str, folder_path: Path, **_: Any) -> str:
            uploaded.extend([repo_id, *sorted(path.name for path in Path(folder_path).iterdir())])
            return "commit"

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Hub)
    model = mjp.MJP(vit("deit_tiny_patch16_224"), "paper")
    assert model.save_pretrained(tmp_path, push_to_hub=True, repo_id="someone/model") == "commit"
    assert uploaded == ["someone/model", "README.md", "config.json", "model.safetensors"]
