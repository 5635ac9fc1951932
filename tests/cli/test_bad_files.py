"""Files that somebody damaged or made up: every command answers with exit code 2 and one line that quotes little."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mjp.cli.main import main
from training.runs import make_pictures

SECRET = "5f8a-secret"
SHIPPED = Path(mjp.__file__).parent / "shipped"

# what a text file may hold
TEXTS = {
    "empty": b"",
    "binary": bytes(range(256)) * 20,
    "not utf-8": f'{{"{SECRET}": "'.encode() + b"\xff\xfe",
    "a list": f'["{SECRET}"]'.encode() * 3,
    "a number": b"17",
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "many digits": b'{"format": ' + b"9" * 5_000 + b"}",
    "nan": b'{"step": NaN}',
    "half": f'{{"{SECRET}": [1, 2'.encode(),
    "long": f'{{"{SECRET}": "'.encode() + SECRET.encode() * 400_000,
    "another object": f'{{"{SECRET}": 1}}'.encode(),
}


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error."""
    capsys.readouterr()
    code = main(arguments)
    output, error = capsys.readouterr()
    assert code == 2, error or output
    (line,) = error.splitlines()
    assert line.startswith(f"mjp {arguments[0]}")
    assert SECRET * 8 not in output + error  # 88 characters
    assert len(line) < 700, len(line)
    return line


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED / "mini-cifar10-mjp", tmp_path / "model"))


@pytest.fixture
def retrieval_model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED / "aladin-flickr8k", tmp_path / "retrieval"))


@pytest.mark.parametrize("content", TEXTS)
def test_recipes(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(TEXTS[content])
    for command in (["train"], ["aladin", "train"]):
        line = answer([*command, "--recipe", str(path)], capsys)
        assert "recipe.yaml" in line or "unknown field" in line


@pytest.mark.parametrize("content", TEXTS)
def test_the_config_of_a_model(content: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "config.json").write_bytes(TEXTS[content])
    assert "config.json" in answer(["eval", str(model)], capsys)
    assert "config.json" in answer(["study", str(model)], capsys)


@pytest.mark.parametrize(
    "changes",
    [
        {"embed_dim": 7},
        {"num_heads": 0},
        {"num_heads": "two"},
        {"embed_dim": 10**9},
        {"embed_dim": -8},
        {"depth": 10**9},
        {"depth": 1.5},
        {"patch_size": 0},
        {"img_size": None},
        {"num_classes": -1},
        {"num_classes": 10**12},
        {SECRET * 1000: 1},
        {"norm_layer": "os.system"},
        {"mlp_ratio": 1e300},
        {"mlp_ratio": [1]},
    ],
    ids=lambda changes: "-".join(f"{name[:12]}={value}" for name, value in changes.items()),
)
def test_impossible_sizes_of_a_model(changes: dict[str, Any], model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((model / "config.json").read_text())
    config["model_args"] |= changes
    (model / "config.json").write_text(json.dumps(config))
    answer(["eval", str(model)], capsys)


@pytest.mark.parametrize("field", ["architecture", "model_args", "mjp", "classes", "preprocessing"])
@pytest.mark.parametrize("value", [17, SECRET * 1000, [SECRET], {SECRET: 1}, [[[]]]], ids=lambda v: str(v)[:9])
def test_wrong_fields_of_a_model(field: str, value: Any, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((model / "config.json").read_text())
    config[field] = value
    (model / "config.json").write_text(json.dumps(config))
    answer(["eval", str(model), "--limit", "2"], capsys)


def weights_of(kind: str, path: Path) -> None:
    """Damage a safetensors file."""
    tensors = load_file(path)
    name = sorted(tensors)[0]
    match kind:
        case "float8":
            tensors = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in tensors.items()}
        case "complex":
            tensors[name] = tensors[name].to(torch.complex64)
        case "shape":
            tensors[name] = torch.zeros(3)
        case "missing":
            del tensors[name]
        case "more":
            tensors[SECRET * 500] = torch.zeros(1)
        case "empty":
            path.write_bytes(b"")
            return
        case "half":
            path.write_bytes(path.read_bytes()[:-100])
            return
        case "header":
            path.write_bytes(b"\xff" * 16)
            return
        case "pipe":
            path.unlink()
            os.mkfifo(path)
            return
    save_file(tensors, path)


@pytest.mark.parametrize("kind", ["float8", "complex", "shape", "missing", "more", "empty", "half", "header", "pipe"])
def test_weights_of_a_model(kind: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights_of(kind, model / "model.safetensors")
    assert "model.safetensors" in answer(["eval", str(model)], capsys)


@pytest.mark.parametrize("content", TEXTS)
def test_results_for_the_report(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.json").write_bytes(TEXTS[content])
    assert "results.json" in answer(["report", str(tmp_path / "report.html"), str(tmp_path)], capsys)


@pytest.mark.parametrize("content", TEXTS)
def test_captions(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "captions.json").write_bytes(TEXTS[content])
    line = answer(["aladin", "train", "--data", str(tmp_path), "--out", str(tmp_path / "run")], capsys)
    assert "captions.json" in line


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", TEXTS)
def test_retrieval_models(
    name: str, content: str, retrieval_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_pictures(tmp_path / "pictures", train=1, val=1)
    (retrieval_model / name).write_bytes(TEXTS[content])
    arguments = ["aladin", "index", str(tmp_path / "pictures"), "-o", str(tmp_path / "index")]
    assert name in answer([*arguments, "--model", str(retrieval_model)], capsys)


@pytest.mark.parametrize("content", TEXTS)
def test_an_index(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "index.json").write_bytes(TEXTS[content])
    (tmp_path / "index" / "catalogue.sqlite").write_bytes(TEXTS[content])
    for command in (["stats"], ["search"]):
        words = ["a dog"] if command == ["search"] else []
        assert "index" in answer(["aladin", *command, str(tmp_path / "index"), *words], capsys)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run of one step, and the command that continues it."""
    home = tmp_path_factory.mktemp("run")
    make_pictures(home / "data", train=8, val=2)
    settings = ["--model-kwargs", "patch_size=8", "embed_dim=24", "depth=1", "num_heads=2", "--input-size", "16"]
    command = ["train", "--data", str(home / "data"), *settings, "--epochs", "1", "--batch-size", "8", "--workers", "0"]
    assert main([*command, "--out", str(home / "out"), "--stop-after", "1"]) == 0
    return home / "out", command


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1},
        {"step": 10**30},
        {"step": SECRET},
        {"sums": [1]},
        {"sums": {"train_loss": SECRET}},
        {"world": SECRET * 100},
        {"model": SECRET},
        {"model": {SECRET * 100: torch.zeros(1)}},
        {"optimizer": {}},
        {"optimizer": 3},
        {"format": SECRET},
    ],
    ids=lambda change: f"{next(iter(change))}",
)
def test_checkpoints_with_wrong_fields(
    change: dict[str, Any], finished_run: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, command = finished_run
    shutil.copytree(folder, tmp_path / "out")
    path = tmp_path / "out" / "checkpoints" / "last.pt"
    torch.save(torch.load(path, weights_only=True) | change, path)
    assert "last.pt" in answer([*command, "--out", str(tmp_path / "out")], capsys)


@pytest.mark.parametrize("name", ["config.yaml", "checkpoints/last.pt"])
@pytest.mark.parametrize("content", TEXTS)
def test_damaged_runs(
    name: str, content: str, finished_run: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, command = finished_run
    shutil.copytree(folder, tmp_path / "out")
    (tmp_path / "out" / name).write_bytes(TEXTS[content])
    answer([*command, "--out", str(tmp_path / "out")], capsys)


@pytest.mark.parametrize("content", ["half", "deep", "many digits", "another object"])
def test_a_damaged_log_does_not_end_a_run(
    content: str, finished_run: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, command = finished_run
    shutil.copytree(folder, tmp_path / "out")
    with (tmp_path / "out" / "metrics.jsonl").open("ab") as file:
        file.write(TEXTS[content] + b"\n")
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "curve.png").stat().st_size > 1000


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [make_pipe, make_device, make_folder, Path.touch])
@pytest.mark.parametrize(
    "command",
    [
        ["jigsaw", "--picture"],
        ["attack", "--model", "mini-cifar10-mjp"],
        ["study", "mini-cifar10-mjp", "--pictures"],
    ],
    ids=lambda command: command[0],
)
def test_pictures_that_are_none(
    make: Callable[[Path], None], command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "x.png")
    assert "x.png" in answer([*command, str(tmp_path / "x.png")], capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--seed", "9" * 30],
        ["train", "--workers=-1"],
        ["eval", "mini-cifar10-mjp", "--seed=-1"],
        ["eval", "mini-cifar10-mjp", "--workers=-2"],
        ["study", "mini-cifar10-mjp", "--seed", "9" * 30],
        ["jigsaw", "--seed=-1"],
        ["audit", "--seed", str(2**64)],
        ["aladin", "train", "--workers=-1"],
    ],
    ids=" ".join,
)
def test_options_out_of_range(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: Any = main([*arguments, "--out", str(tmp_path / "out")])
    except SystemExit as exit:  # what the parser itself refuses
        code = exit.code
    error = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert code == 2
    assert re.search(r"--(seed|workers) must be", error)
    assert len(error) < 400
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["jigsaw", "--out", ""], ["jigsaw", "--out="], ["eval", "--out", ""]])
def test_an_empty_folder_name_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "--out" in answer(arguments, capsys)
