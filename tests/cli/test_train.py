"""`mjp train` as a person types it: results and mistakes."""

import errno
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
import torchvision.datasets
import yaml

import mjp
from mjp.cli.main import main
from training.runs import TINY_VIT, make_pictures, weights

SMALL = ["--model-kwargs", *TINY_VIT, "--input-size", "16", "--batch-size", "8", "--epochs", "2", "--workers", "0"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pictures(tmp_path_factory.mktemp("pictures") / "data")


def mjp_train(data: Path, out: Path, *more: str) -> int:
    return main(["train", "--data", str(data), "--out", str(out), "--device", "cpu", *SMALL, *more])


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr."""
    said = capsys.readouterr().err
    assert said.startswith("mjp train: ")
    assert said.count("\n") == 1
    return said


def test_the_last_line_says_where_the_result_is(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mjp_train(data, tmp_path) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split() == ["result", str(tmp_path / "model")]
    assert mjp.MJP.from_pretrained(tmp_path / "model").config.position == "unknown"


def test_the_same_command_again_continues(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mjp_train(data, tmp_path / "whole") == 0
    assert mjp_train(data, tmp_path / "run", "--stop-after", "3") == 0
    assert mjp_train(data, tmp_path / "run") == 0
    assert "at step 3 from" in capsys.readouterr().out
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.mark.parametrize("preset", ["plain", *"ABCDEFGHIJ", "paper", "reference", "private"])
def test_every_preset_trains(data: Path, tmp_path: Path, preset: str) -> None:
    short = ["--epochs", "1", "--batch-size", "24", "--mjp.ratio", "0.5", "--mjp.start-epoch", "0"]
    assert mjp_train(data, tmp_path, "--preset", preset, *short) == 0
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["preset"] == preset


def test_a_misspelt_option_ends_with_2_and_trains_nothing(data: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        mjp_train(data, tmp_path / "run", "--mixpu", "0.8")
    assert stop.value.code == 2
    assert not (tmp_path / "run").exists()


def test_a_value_out_of_range_ends_with_2_and_names_its_option(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        mjp_train(data, tmp_path, "--batch-size", "0")
    assert stop.value.code == 2
    assert "--batch-size must be a whole number of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "papre"], "unknown preset 'papre'"),
        (["--recipe", "nothing"], "there is no recipe 'nothing'"),
        (["--model", "diet_tiny"], "timm has no model 'diet_tiny'"),
        (["--data", "/nowhere"], "there is no folder /nowhere/train"),
        (["--resume", "/nowhere/last.pt"], "there is no checkpoint /nowhere/last.pt"),
        (["--opt", "adamv"], "adamv"),
        (["--device", "gpu"], "device 'gpu' is not available"),
    ],
)
def test_a_mistake_is_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert mjp_train(data, tmp_path, *arguments) == 2
    assert message in complaint(capsys)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_offline_a_named_data_set_ends_with_2_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    def offline(*_: Any, **__: Any) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(torchvision.datasets, name.upper(), offline)
    assert mjp_train(Path(name), tmp_path, "--data-dir", str(tmp_path)) == 2
    assert "pass --data a folder" in complaint(capsys)


def test_a_full_disk_ends_with_2_and_keeps_the_last_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert mjp_train(data, tmp_path, "--stop-after", "3") == 0
    before = (tmp_path / "checkpoints" / "last.pt").read_bytes()
    monkeypatch.setattr(torch, "save", full)
    assert mjp_train(data, tmp_path) == 2
    assert "the last one is intact" in complaint(capsys)
    assert (tmp_path / "checkpoints" / "last.pt").read_bytes() == before


def test_a_folder_that_cannot_be_written_ends_with_2(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert mjp_train(data, tmp_path / "file" / "run") == 2
    assert str(tmp_path / "file") in complaint(capsys)
    assert (tmp_path / "file").read_text() == "not a folder"


def test_a_read_only_folder_ends_with_2_and_keeps_the_last_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read_only(self: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    assert mjp_train(data, tmp_path, "--stop-after", "3") == 0
    before = (tmp_path / "checkpoints" / "last.pt").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", read_only)
        assert mjp_train(data, tmp_path) == 2
    assert "Read-only file system" in complaint(capsys)
    assert (tmp_path / "checkpoints" / "last.pt").read_bytes() == before


def test_other_settings_in_the_same_folder_end_with_2(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mjp_train(data, tmp_path, "--stop-after", "1") == 0
    assert mjp_train(data, tmp_path, "--drop-path", "0.4", "--seed", "2") == 2
    assert "(drop_path, seed)" in complaint(capsys)


def test_a_damaged_checkpoint_ends_with_2_and_offers_the_one_before(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mjp_train(data, tmp_path, "--stop-after", "3", "--checkpoint-minutes", "0") == 0
    (tmp_path / "checkpoints" / "last.pt").write_bytes(b"damaged")
    assert mjp_train(data, tmp_path) == 2
    assert f"--resume {tmp_path / 'checkpoints' / 'previous.pt'}" in complaint(capsys)
    assert mjp_train(data, tmp_path, "--resume", str(tmp_path / "checkpoints" / "previous.pt")) == 0


def test_a_loss_that_is_not_finite_ends_with_2_and_a_checkpoint(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mjp_train(data, tmp_path, "--lr", "1e30", "--clip-grad", "None", "--opt", "sgd", "--warmup-epochs", "0") == 2
    assert "The last good step is saved in" in complaint(capsys)
    assert (tmp_path / "checkpoints" / "last.pt").exists()


def test_unreadable_pictures_end_with_2_and_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_pictures(tmp_path / "data")
    (root / "train" / "dark" / "04.png").write_bytes(b"")
    assert mjp_train(root, tmp_path / "run") == 2
    assert "dark/04.png" in complaint(capsys)
    assert mjp_train(root, tmp_path / "run", "--max-unreadable", "1") == 0
