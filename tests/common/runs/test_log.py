"""What a person sees: lines of JSON, TensorBoard, a picture. What was not saved is forgotten."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mjp.common.errors import InputError
from mjp.common.runs.log import Log, draw_curve


def log_of(folder: Path, *steps: int) -> Log:
    log = Log(folder, tensorboard=False)
    for step in steps:
        log.write("step", step, train_loss=1 / step)
    return log


def test_each_entry_is_one_line_of_json(tmp_path: Path) -> None:
    log_of(tmp_path, 1, 2)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"kind": "step", "step": 1, "train_loss": 1.0},
        {"kind": "step", "step": 2, "train_loss": 0.5},
    ]


def test_rewinding_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    log = log_of(tmp_path, 1, 2, 3, 4)
    log.rewind(2)
    assert [entry["step"] for entry in log.read("step")] == [1, 2]


def test_rewinding_forgets_a_line_that_a_kill_cut_off(tmp_path: Path) -> None:
    log = log_of(tmp_path, 1)
    with open(log.path, "a") as file:
        file.write('{"kind": "step", "st')
    log.rewind(5)
    assert [entry["step"] for entry in log.read("step")] == [1]


def test_rewinding_a_new_run_leaves_an_empty_log(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    log.rewind(0)
    assert log.path.read_text() == ""


def test_reading_selects_a_kind_and_a_missing_log_is_empty(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    assert log.read("epoch") == []
    log.write("step", 1)
    log.write("epoch", 1, epoch=1)
    assert log.read("epoch") == [{"kind": "epoch", "step": 1, "epoch": 1}]


def test_tensorboard_gets_every_number(tmp_path: Path) -> None:
    reader: Any = import_module("tensorboard.backend.event_processing.event_accumulator")  # it has no types

    log = Log(tmp_path, tensorboard=True)
    log.write("epoch", 3, train_loss=0.25, val_top1=None)
    assert log.board is not None
    log.board.close()
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["epoch/train_loss"]
    assert [(event.step, event.value) for event in events.Scalars("epoch/train_loss")] == [(3, 0.25)]


def test_without_tensorboard_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"pip install 'mjp\[tensorboard\]'"):
        Log(tmp_path, tensorboard=True)


@pytest.mark.parametrize("val_top1", [None, 50.0])
def test_the_curve_is_a_picture_also_without_evaluations(tmp_path: Path, val_top1: float | None) -> None:
    log = log_of(tmp_path)
    for epoch in (1, 2, 3):
        log.write("epoch", epoch, epoch=epoch, train_loss=1 / epoch, val_loss=1.0, val_top1=val_top1)
    draw_curve(log, tmp_path / "curve.png", "a run")
    with Image.open(tmp_path / "curve.png") as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 100
