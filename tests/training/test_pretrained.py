"""Pretrained weights arrive where they belong, whatever they are kept in, and the report says what did not."""

from argparse import Namespace
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.layers import resample_abs_pos_embed
from torch import Tensor

import mjp
from mjp import models
from mjp.cli.main import main
from mjp.common.errors import InputError
from mjp.training.build import build_pretrained
from mjp.training.engine import train
from mjp.training.pretrained import Loaded, load_into_timm, load_into_wrapper
from mjp.training.summary import summary_lines
from training.runs import TINY_VIT, settings, started, weights

SIZES: dict[str, Any] = {"patch_size": 8, "embed_dim": 24, "depth": 1, "num_heads": 2}


def vit(classes: int = 5, size: int = 32) -> Any:
    """A timm ViT that is not at its initial values."""
    model: Any = timm.create_model("deit_tiny_patch16_224", img_size=size, num_classes=classes, **SIZES)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return model


def finetuned(source: Path, **changes: Any) -> tuple[Any, Loaded]:
    model, report = build_pretrained(settings(Path("nowhere"), Path("nowhere"), checkpoint=str(source), **changes), 2)
    assert report is not None
    return model, report


def save(content: Any, path: Path) -> Path:
    torch.save(content, path)
    return path


def saved_model(model: Any, folder: Path) -> Path:
    wrapped = mjp.MJP(model, mjp.variant("J"))
    wrapped.save_pretrained(folder)
    return folder


def tensor_file(weights: dict[str, Tensor], path: Path) -> Path:
    save_file(weights, path)
    return path


KINDS: dict[str, Callable[[Any, Path], Path]] = {
    "safetensors": lambda model, home: tensor_file(model.state_dict(), home / "w.safetensors"),
    "float16": lambda model, home: tensor_file(deepcopy(model).half().state_dict(), home / "half.safetensors"),
    "plain pth": lambda model, home: save(model.state_dict(), home / "w.pth"),
    "DeiT": lambda model, home: save({"model": model.state_dict(), "args": Namespace(lr=1)}, home / "deit.pth"),
    "timm": lambda model, home: save({"state_dict": model.state_dict(), "epoch": 3}, home / "timm.pth.tar"),
    "DDP": lambda model, home: save({f"module.{n}": t for n, t in model.state_dict().items()}, home / "ddp.pt"),
    "saved model": lambda model, home: saved_model(model, home / "saved"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_container_gives_the_same_weights(kind: str, tmp_path: Path) -> None:
    source = vit(size=16)
    model, report = finetuned(KINDS[kind](source, tmp_path))
    tolerance = 1e-2 if kind == "float16" else 0
    for name, tensor in source.state_dict().items():
        if not name.startswith("head."):
            torch.testing.assert_close(model.model.state_dict()[name], tensor, rtol=tolerance, atol=tolerance)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert report.replaced == {"head.weight", "head.bias"}


def test_a_moving_average_is_preferred_to_the_weights_it_averages(tmp_path: Path) -> None:
    plain, average = vit(size=16), vit(size=16)
    path = save({"state_dict": plain.state_dict(), "state_dict_ema": average.state_dict()}, tmp_path / "both.pth")
    model, _ = finetuned(path)
    assert torch.equal(model.model.cls_token, average.cls_token)


@pytest.mark.parametrize("stop_after", [None, 4], ids=["finished", "stopped"])
def test_another_run_is_a_source_finished_or_not(data: Path, tmp_path: Path, stop_after: int | None) -> None:
    train(settings(data, tmp_path, stop_after=stop_after))
    model, report = finetuned(tmp_path)
    run = started(settings(data, tmp_path))
    with run.opened():
        expected = run.model.weights()
    assert all(torch.equal(value, expected[name]) for name, value in model.weights().items())
    assert (report.new, report.unused) == (set(), set())  # E_unk and the localization head too


def test_a_head_for_as_many_classes_is_kept(tmp_path: Path) -> None:
    source = vit(classes=2, size=16)
    model, report = finetuned(KINDS["safetensors"](source, tmp_path))
    assert torch.equal(model.model.head.weight, source.head.weight)
    assert not report.replaced
    assert "model.head.weight" not in report.new


@pytest.mark.parametrize(("size", "grid"), [(16, (2, 2)), (32, (4, 4)), (64, (8, 8))])
def test_positions_are_resampled_to_the_grid_of_the_input(tmp_path: Path, size: int, grid: tuple[int, int]) -> None:
    source = vit()  # a grid of 4×4
    model, report = finetuned(KINDS["safetensors"](source, tmp_path), input_size=size)
    expected = resample_abs_pos_embed(source.pos_embed, list(grid), num_prefix_tokens=1)
    torch.testing.assert_close(model.model.pos_embed, expected)
    assert report.resampled == (None if grid == (4, 4) else ((4, 4), grid))
    resampled = f"position table resampled from 4×4 to {grid[0]}×{grid[1]}"
    assert (resampled in report.lines()) == (grid != (4, 4))


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about how timm resamples biases
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("cait_xxs24_224", {}),
        ("beit_base_patch16_224", {"use_abs_pos_emb": True}),
        ("vit_small_patch16_rope_ape_224", {}),
    ],
)
def test_other_families_with_a_table_follow_the_size_with_all_that_mjp_added(name: str, changes: Any) -> None:
    def build(size: int) -> Any:
        return timm.create_model(name, img_size=size, num_classes=2, **SIZES, **changes)

    config = mjp.variant("G", unknown_rotation="learned" if "rope" in name else "identity")
    source = mjp.MJP(build(32), config)
    added = {parameter: tensor for parameter, tensor in source.weights().items() if not parameter.startswith("model.")}
    content = {parameter.removeprefix("model."): tensor for parameter, tensor in source.weights().items()}
    network = build(64)
    report = load_into_timm(network, "file", dict(content))
    load_into_wrapper(mjp.MJP(network, config), content, report)
    assert report.resampled == ((4, 4), (8, 8))
    assert not report.new
    assert added.keys() <= report.loaded


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about how timm resamples biases
@pytest.mark.parametrize(
    ("name", "changes"), [("beit_base_patch16_224", {}), ("vit_relpos_base_patch16_cls_224", {"rel_pos_type": "bias"})]
)
def test_relative_biases_follow_the_size(name: str, changes: Any) -> None:
    source = timm.create_model(name, img_size=32, **SIZES, **changes)
    network = timm.create_model(name, img_size=64, **SIZES, **changes)
    weights = dict(source.state_dict())
    constant = {key: torch.full_like(tensor, 3.0) for key, tensor in weights.items() if key.endswith("bias_table")}
    report = load_into_timm(network, "file", {**weights, **constant})
    assert f"{len(constant)} tables of relative biases resampled" in report.lines()
    for key in constant:
        table = network.state_dict()[key]
        torch.testing.assert_close(table, torch.full_like(table, 3.0))


@pytest.mark.parametrize("size", [16, 32])
def test_the_unknown_position_starts_at_the_mean_of_the_loaded_table(tmp_path: Path, size: int) -> None:
    source = vit()
    model, report = finetuned(KINDS["safetensors"](source, tmp_path), input_size=size)
    torch.testing.assert_close(model.unknown, model.model.pos_embed[0, 1:].mean(0))
    assert model.unknown.abs().max() > 0.05  # the mean of a random table is nearly zero
    assert "unknown" in report.new
    zero, _ = finetuned(KINDS["safetensors"](source, tmp_path), input_size=size, mjp={"unknown_init": "zeros"})
    assert not zero.unknown.any()


def test_a_loaded_table_stays_when_positions_start_as_in_the_authors_code(tmp_path: Path) -> None:
    source = vit(size=16)
    weights = tensor_file(source.state_dict(), tmp_path / "weights.safetensors")
    model, _ = finetuned(weights, reference_positions=True, model_kwargs=[*TINY_VIT])
    assert torch.equal(model.model.pos_embed, source.pos_embed)
    assert model.unknown.std() > 0.5


def test_an_index_table_follows_the_grid(tmp_path: Path) -> None:
    source = mjp.MJP(vit(), mjp.variant("F"))
    with torch.no_grad():
        source.index.add_(torch.randn_like(source.index))  # type: ignore[union-attr, arg-type]
    source.save_pretrained(tmp_path / "saved")
    model, _ = finetuned(tmp_path / "saved", preset="F", input_size=16)
    expected = resample_abs_pos_embed(source.index, [2, 2], num_prefix_tokens=0)
    torch.testing.assert_close(model.index, expected)


def test_the_report_counts_and_names_what_was_and_was_not_loaded(tmp_path: Path) -> None:
    source = vit().state_dict()
    del source["norm.bias"]
    path = tmp_path / "w.safetensors"
    save_file({**source, "decoder.weight": torch.ones(2)}, path)
    _, report = finetuned(path, input_size=32)
    loaded = len(source) - 2  # without the head
    assert report.lines() == [
        f"{loaded} tensors from {path}",
        "replaced, for another number of classes: head",
        "new: head, localizer.head.0, localizer.head.2, norm, unknown",
        "in the file and not used: decoder",
    ]


def test_a_swin_takes_pretrained_weights_at_another_size(tmp_path: Path) -> None:
    kwargs: dict[str, Any] = {"embed_dim": 12, "depths": (1, 1), "num_heads": (1, 2), "window_size": 4}
    source: Any = timm.create_model("swin_tiny_patch4_window7_224", img_size=64, num_classes=3, **kwargs)
    path = KINDS["safetensors"](source, tmp_path)
    texts = [f"{name}={value}" for name, value in kwargs.items()]
    changes: dict[str, Any] = {"model": "swin_tiny_patch4_window7_224", "model_kwargs": texts, "input_size": 128}
    model, report = finetuned(path, **changes, mjp={"ape": True})
    assert torch.equal(model.model.patch_embed.proj.weight, source.patch_embed.proj.weight)
    assert {name.partition(".")[0] for name in report.new} == {"model", "unknown", "pos_embed", "localizer"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"weight": torch.ones(2)}, "holds no weights of this model: it has weight, not"),
        ({"blocks.0.attn.qkv.weight": torch.ones(2, 2)}, r"belongs to another model: it has blocks\.0\.attn\.qkv"),
        ({"cls_token": torch.ones(1, 1, 24), "pos_embed": torch.ones(1, 12, 24)}, "belongs to another model"),
        ({}, "must hold tensors"),
    ],
)
def test_weights_of_another_model_are_refused(tmp_path: Path, content: dict[str, Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        finetuned(save(content, tmp_path / "other.pt"))


def test_a_source_that_is_not_there_is_refused_before_anything_is_written(data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source in (tmp_path / "nothing.pth", tmp_path / "empty"):
        with pytest.raises(InputError, match=str(source)):
            train(settings(data, tmp_path / "run", checkpoint=str(source)))
    assert not (tmp_path / "run").exists()


def test_a_pickle_is_not_executed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"evil\.pth"):
        finetuned(save({"model": pytest.raises}, tmp_path / "evil.pth"))


def test_weights_from_timm_come_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    source = vit(size=16)
    create = timm.create_model

    def stored(name: str, **options: Any) -> Any:
        return source if options.pop("pretrained", False) else create(name, **options)

    monkeypatch.setattr(models, "hub_is_reachable", lambda: True)
    monkeypatch.setattr(timm, "create_model", stored)
    model, report = build_pretrained(settings(Path("nowhere"), Path("nowhere"), pretrained=True), 2)
    assert report is not None
    assert report.source == "timm's deit_tiny_patch16_224"
    assert torch.equal(model.model.cls_token, source.cls_token)  # type: ignore[arg-type]


def test_offline_the_hub_is_one_sentence_at_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models, "hub_is_reachable", lambda: False)
    monkeypatch.setattr(models, "try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: pytest.fail("the hub was asked"))
    arguments = ["--data", str(data), "--out", str(tmp_path / "run"), "--pretrained"]
    assert main(["train", "--recipe", "finetune", *arguments]) == 2
    message = capsys.readouterr().err
    assert message.startswith("mjp train: the weights of timm:deit_tiny_patch16_224 cannot be downloaded")
    assert "--checkpoint" in message
    assert message.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_stopped_fine_tuning_continues_to_the_same_bits_without_its_source(data: Path, tmp_path: Path) -> None:
    source = KINDS["safetensors"](vit(size=16), tmp_path)
    changes: dict[str, Any] = {
        "checkpoint": str(source),
        "layer_decay": 0.5,
        "head_lr": 3.0,
        "freeze": ["patch_embed.*"],
    }
    train(settings(data, tmp_path / "whole", **changes))
    train(settings(data, tmp_path / "run", stop_after=4, **changes))
    source.unlink()
    train(settings(data, tmp_path / "run", **changes))
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_fine_tuning_learns_from_what_it_starts_with(data: Path, tmp_path: Path) -> None:
    """A run that starts from a trained model is at once as good as that."""
    train(settings(data, tmp_path / "first", epochs=6, lr=0.3, warmup_epochs=0.5))
    second = started(settings(data, tmp_path / "second", checkpoint=str(tmp_path / "first"), epochs=1, lr=1e-4))
    second.train()
    assert second.log.read("epoch")[-1]["val_top1"] == 100


def test_the_command_prints_what_it_is_about_to_do(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = KINDS["safetensors"](vit(), tmp_path)
    arguments = ["--data", str(data), "--out", str(tmp_path / "run"), "--checkpoint", str(path), "--input-size", "32"]
    sizes = ["--batch-size", "8", "--epochs", "2", "--workers", "0", "--mjp.ratio", "0.3", "--limit", "32"]
    learning = ["--lr", "0.064", "--layer-decay", "0.5", "--head-lr", "4", "--freeze", "patch_embed.*"]
    assert main(["train", *arguments, *sizes, *learning, "--model-kwargs", *TINY_VIT]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "model deit_tiny_patch16_224 at 32 px, 13,060 parameters",
        "4,632 of them frozen (2 tensors)",
        f"weights 18 tensors from {path} replaced",
        "data 32 training pictures of 2 classes, 16 for validation",
        "jigsaw 4×4 grid, 4 of 16 patches masked per picture",
        "learning rate 0.001 (0.064 × 8 / 512), layer decay 0.5, new parameters × 4",
        "steps 8 = 2 epochs × 4, 8 pictures each",
    ):
        assert part in text, (part, text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensor: tensor.masked_fill(tensor == tensor.max(), torch.nan), "hold NaN or infinity, first in norm"),
        (lambda tensor: (100 * tensor).to(torch.int8), "norm.weight is of type int8, a quantised model"),
    ],
)
def test_weights_that_are_not_numbers_to_start_from_are_refused(
    tmp_path: Path, change: Callable[[Tensor], Tensor], message: str
) -> None:
    tensors = vit().state_dict()
    tensors["norm.weight"] = change(tensors["norm.weight"])
    with pytest.raises(InputError, match=message):
        finetuned(tensor_file(tensors, tmp_path / "w.safetensors"))


def test_the_summary_says_that_nothing_moves_in_a_model_that_takes_any_size() -> None:
    config = settings(Path("nowhere"), Path("nowhere"), input_size=64)
    model = mjp.MJP(timm.create_model("resnet10t", num_classes=2), mjp.variant("E", ratio=0.09))
    lines = summary_lines(
        config, model, loaded=None, resumed=False, frozen=[], pictures=(8, 8), step_size=4, steps_per_epoch=2
    )
    said = [line for line in lines if "no patch ever moves" in line]
    assert ["0.125" in line for line in said] == [True]
