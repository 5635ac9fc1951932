"""`mjp eval` from what a person types to the files that it names."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from mjp.cli.main import main
from mjp.training.engine import train
from training.runs import make_pictures, settings

QUICK = ["--limit", "20", "--ratios", "0.5", "--draws", "1", "--workers", "0"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny untrained model for the ten embedded classes."""
    size: dict[str, Any] = {
        "img_size": 32,
        "patch_size": 8,
        "depth": 1,
        "embed_dim": 24,
        "num_heads": 2,
        "num_classes": 10,
    }
    folder = tmp_path_factory.mktemp("models") / "tiny"
    mjp.MJP(timm.create_model("deit_tiny_patch16_224", **size)).save_pretrained(folder)
    return folder


def test_writes_figures_and_curves(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(saved), "--out", str(tmp_path / "out"), *QUICK]) == 0
    figures = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (figures["kind"], figures["settings"]["limit"]) == ("eval", 20)
    assert set(figures["versions"]) == {"mjp", "torch", "timm"}
    result = figures["models"][str(saved)]
    assert (result["pictures"], result["draws"], result["seed"]) == (20, 1, 0)
    assert {p["unknown"] for p in result["points"]} == {True, False}
    with Image.open(tmp_path / "out" / "sweep.png") as chart:
        assert chart.width > 1000
    assert "95 % intervals" in capsys.readouterr().out


def test_a_folder_of_classes_is_read(saved: Path, tmp_path: Path) -> None:
    for k in range(10):
        folder = tmp_path / "data" / "val" / f"class{k}"
        folder.mkdir(parents=True)
        Image.new("RGB", (40, 40), (20 * k, 0, 0)).save(folder / "a.png")
    assert main(["eval", str(saved), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out"), *QUICK]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name at least one model"),
        (["no_such_model"], "there is no model 'no_such_model'"),
        (["/nowhere/model"], "there is no model '/nowhere/model'"),
        (["timm:no_such_model"], "timm has no model 'no_such_model'"),
        (["SAVED", "--ratios", "1.5"], "--ratios must lie between 0 and 1, not 1.5"),
        (["SAVED", "--draws", "0"], "--draws must be a whole number of at least 1"),
        (["SAVED", "--data", "nowhere"], "there is no folder nowhere"),
        (["SAVED", "--limit", "0"], "--limit must be a whole number of at least 1"),
        (["SAVED", "--device", "no_such_device"], "device 'no_such_device' is not available"),
        (["SAVED", "--device", "cuda:99"], "device 'cuda:99' is not available here"),
        (["tests/no_such_model"], "there is no model 'tests/no_such_model'"),
        (["README.md"], "README.md is a file"),
        (["owner/name"], "owner/name is neither a folder here nor a repository that can be reached: no connection"),
        (["timm:deit_tiny_patch16_224"], "the hub cannot be reached"),
        (["SAVED", "mini-cifar10-mjp", "--weights", "x.pt"], "--weights belong to one model"),
        (["SAVED", "--weights", "x.pt"], "there is no file of weights x.pt"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    arguments: list[str], message: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(saved) if a == "SAVED" else a for a in arguments]
    assert main(["eval", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_pictures_of_other_classes_are_refused(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.new("RGB", (40, 40)).save(tmp_path / "data" / name / "a.png")
    assert main(["eval", str(saved), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]) == 2
    assert "has 10 classes, the pictures have 2" in capsys.readouterr().err


def test_names_of_classes_are_compared(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = mjp.MJP.from_pretrained(saved)
    named.classes = [f"class{k}" for k in range(10)]
    named.save_pretrained(tmp_path / "named")
    assert main(["eval", str(tmp_path / "named"), "--out", str(tmp_path / "out"), *QUICK]) == 2
    assert "the classes of the pictures are not those of" in capsys.readouterr().err


def test_an_unreadable_picture_is_named(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k in range(10):
        folder = tmp_path / "data" / f"class{k}"
        folder.mkdir(parents=True)
        Image.new("RGB", (40, 40)).save(folder / "a.png")
    (tmp_path / "data" / "class3" / "a.png").write_text("broken")
    command = ["eval", str(saved), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out"), *QUICK]
    assert main(command) == 2
    assert "class3/a.png" in capsys.readouterr().err
    assert main([*command, "--max-unreadable", "1"]) == 0
    assert json.loads((tmp_path / "out" / "results.json").read_text())["models"][str(saved)]["pictures"] == 10


def figures_of(out: Path) -> dict[str, Any]:
    models: dict[str, Any] = json.loads((out / "results.json").read_text())["models"]
    return models


def test_without_ratios_there_is_accuracy_alone(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(saved), "--ratios", "--limit", "20", "--workers", "0", "--out", str(tmp_path)]) == 0
    model = figures_of(tmp_path)[str(saved)]
    assert (model["points"], model["pictures"]) == ([], 20)
    assert "under the jigsaw" not in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_a_model_named_twice_is_evaluated_once(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(saved), str(saved), "--out", str(tmp_path), *QUICK]) == 0
    output = capsys.readouterr().out
    assert output.count("top-5") == 1
    assert "1 draw," in output


def test_weights_from_a_file_are_evaluated(saved: Path, tmp_path: Path) -> None:
    """Half precision, timm's names, a classifier of another width than timm's own."""
    model = mjp.load("mini-cifar10-plain")
    names = model.unwrap().state_dict()
    save_file({name: tensor.half() for name, tensor in names.items()}, tmp_path / "half.safetensors")
    torch.save({"model": {f"module.{name}": tensor for name, tensor in names.items()}}, tmp_path / "ddp.pth")
    tops = []
    for name in ("half.safetensors", "ddp.pth"):
        command = ["eval", "mini-cifar10-plain", "--weights", str(tmp_path / name), "--ratios", "--limit", "50"]
        assert main([*command, "--workers", "0", "--out", str(tmp_path)]) == 0
        tops.append(figures_of(tmp_path)["mini-cifar10-plain"]["top1"][0])
    assert min(tops) > 0.5
    assert main(["eval", str(saved), "--weights", str(tmp_path / "ddp.pth"), "--out", str(tmp_path / "no")]) == 2


@pytest.mark.parametrize("command", ["eval", "study"])
def test_half_precision_works_and_nan_is_refused(
    command: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = QUICK if command == "eval" else []
    model = mjp.MJP.from_pretrained(saved).half()
    model.save_pretrained(tmp_path / "half")
    assert main([command, str(tmp_path / "half"), "--out", str(tmp_path / "out"), *quick]) == 0
    backbone: Any = model.model
    with torch.no_grad():
        backbone.blocks[0].mlp.fc1.weight[3, 3] = torch.nan
    model.save_pretrained(tmp_path / "nan")
    capsys.readouterr()
    assert main([command, str(tmp_path / "nan"), "--out", str(tmp_path / "no"), *quick]) == 2
    assert "hold NaN or infinity, first in model.blocks.0.mlp.fc1.weight" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_a_run_that_has_not_ended_is_taken_at_its_last_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a moving average, which is what the end of the run would save."""
    data = make_pictures(tmp_path / "data")
    train(settings(data, tmp_path / "run", stop_after=7, model_ema=True))
    assert not (tmp_path / "run" / "model").exists()
    command = ["eval", str(tmp_path / "run"), "--data", str(data), "--ratios", "--workers", "0"]
    assert main([*command, "--out", str(tmp_path / "a")]) == 0
    assert "is unfinished: taking its last checkpoint, step 7" in capsys.readouterr().out
    train(settings(data, tmp_path / "run", model_ema=True))
    assert main([*command, "--out", str(tmp_path / "b")]) == 0
    assert "unfinished" not in capsys.readouterr().out
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = [entry for entry in logged if entry["kind"] == "epoch"][-1]
    evaluated = figures_of(tmp_path / "b")[str(tmp_path / "run")]
    assert 100 * evaluated["top1"][0] == pytest.approx(last["val_top1"])
