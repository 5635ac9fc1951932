"""A run learns, writes what it found, and killed at any moment continues to the same bits."""

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

import mjp
from mjp.cli.main import main
from mjp.common.results import read_results
from mjp.pictures.decode import read_png
from mjp.segmentation.train import segment
from processes import PATIENCE, exit_code, start
from segmentation.scenes import ADE20K, CLASSES, TIMING, segment_task, settings, write_scenes

EVERY_STEP = {"checkpoint_minutes": 0.0}


@pytest.fixture(scope="module")
def whole(camvid: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    segment(settings(camvid, out, **EVERY_STEP))
    return out


def metrics(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what depends on the clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMING} for line in lines]


def assert_same(run: Path, whole: Path) -> None:
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert (run / "counts.safetensors").read_bytes() == (whole / "counts.safetensors").read_bytes()
    assert metrics(run) == metrics(whole)
    assert read_results(run).models == read_results(whole).models


@pytest.mark.parametrize("layout", ["camvid", "ade20k"])
def test_a_run_learns_colours_from_scratch(layout: str, camvid: Path, tmp_path: Path) -> None:
    data = camvid if layout == "camvid" else write_scenes(tmp_path / "data", layout=ADE20K)
    results = segment(settings(data, tmp_path / "run", epochs=8, drop_path=0.0, eval_every=4))
    assert results is not None
    (model,) = results.models.values()
    assert model["miou"][0] > 0.8  # guessing gives at most 1/3
    assert model["macc"][0] > 0.85
    assert results.body["layout"] == layout
    assert results.body["split"] == ("test" if layout == "camvid" else "val")
    assert tuple(model["classes"]) == CLASSES
    assert sum(row["pixels"] for row in model["classes"].values()) == 8 * 63 * 64  # the void row does not count


def test_a_run_leaves_results_pictures_and_weights(whole: Path) -> None:
    results = read_results(whole)
    assert results.kind == "segment"
    (model,) = results.models.values()
    assert set(model) >= {"miou", "macc", "accuracy", "pictures", "steps", "seed", "backbone", "classes"}
    assert model["steps"] == 8
    for name in ("predictions.png", "predictions-dark.png", "curve.png"):
        assert min(read_png(whole / name)[1:]) > 200
    names = {path.name for path in whole.iterdir()}
    assert names == {
        *("config.yaml", "metrics.jsonl", "checkpoints", "results.json", "predictions.png", "curve.png"),
        *("model.safetensors", "counts.safetensors", "predictions-dark.png"),
    }


def test_a_run_that_stopped_continues_to_the_same_bits(whole: Path, camvid: Path, tmp_path: Path) -> None:
    for stop in (1, 5):  # inside both epochs
        assert segment(settings(camvid, tmp_path, stop_after=stop, **EVERY_STEP)) is None
    segment(settings(camvid, tmp_path, **EVERY_STEP))
    assert_same(tmp_path, whole)


def test_a_finished_run_is_measured_again_not_trained_again(whole: Path, camvid: Path) -> None:
    before = (whole / "model.safetensors").read_bytes(), metrics(whole), read_results(whole).models
    segment(settings(camvid, whole, **EVERY_STEP))
    assert before == ((whole / "model.safetensors").read_bytes(), metrics(whole), read_results(whole).models)


def test_mixed_precision_trains_float32_weights(camvid: Path, tmp_path: Path) -> None:
    results = segment(settings(camvid, tmp_path, amp="bf16", epochs=1))
    assert results is not None
    (model,) = results.models.values()
    assert 0 < model["miou"][0] < 1
    floating = [t for t in load_file(tmp_path / "model.safetensors").values() if t.is_floating_point()]
    assert all(tensor.dtype == torch.float32 and tensor.isfinite().all() for tensor in floating)


def test_other_settings_do_not_continue_a_run(whole: Path, camvid: Path) -> None:
    with pytest.raises(mjp.InputError, match="holds a run with other settings \\(lr\\)"):
        segment(settings(camvid, whole, lr=1e-3, **EVERY_STEP))


def test_the_number_of_workers_changes_nothing(whole: Path, camvid: Path, tmp_path: Path) -> None:
    segment(settings(camvid, tmp_path, workers=2, **EVERY_STEP))
    assert_same(tmp_path, whole)


def arguments(config: Any) -> list[str]:
    """The command line of a configuration."""
    words = ["segment"]
    for name, value in yaml.safe_load(config.to_yaml()).items():
        if isinstance(value, bool):
            words += [f"--{'' if value else 'no-'}{name.replace('_', '-')}"]
        elif value is not None:
            words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return words


def lines_in(run: Path) -> int:
    log = run / "metrics.jsonl"
    return len(log.read_bytes().splitlines()) if log.exists() else 0


def test_a_run_killed_at_random_moments_continues_to_the_same_bits(whole: Path, camvid: Path, tmp_path: Path) -> None:
    config = settings(camvid, tmp_path, **EVERY_STEP)
    moments = random.Random(0)
    for _ in range(2):
        process = start(segment_task, config)
        enough, deadline = lines_in(tmp_path) + moments.randint(1, 3), time.monotonic() + PATIENCE
        while process.is_alive() and lines_in(tmp_path) < enough and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.05))
        process.kill()
        assert exit_code(process) == -signal.SIGKILL
    segment(config)
    assert_same(tmp_path, whole)


def test_the_command_prints_a_table_or_json(whole: Path, camvid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments(settings(camvid, whole, **EVERY_STEP)), "--json"]) == 0
    output = capsys.readouterr()
    printed = json.loads(output.out)
    assert printed["kind"] == "segment"
    assert printed["models"] == read_results(whole).models
    text = output.err
    assert [line.split()[0] for line in text.splitlines() if line.startswith(CLASSES)] == list(CLASSES)
    assert "mIoU" in text
    assert "predictions.png" in text


def missing_mask(root: Path) -> None:
    (root / "train/masks/4.png").unlink()


def cut_test_picture(root: Path) -> None:
    path = root / "test/images/7.png"
    path.write_bytes(path.read_bytes()[:300])


@pytest.mark.parametrize("spoil", [missing_mask, cut_test_picture])
def test_bad_data_exits_with_2_and_leaves_nothing(
    spoil: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_scenes(tmp_path / "data")
    spoil(data)
    assert main(arguments(settings(data, tmp_path / "run"))) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mjp segment:")]
    assert str(data) in line
    assert not (tmp_path / "run").exists()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "crop": ({"crop": 50}, "--crop must be a multiple of 32"),
    "batch": ({"batch_size": 1}, "--batch-size must be a whole number of at least 2"),
    "scale": ({"scale": (2.0, 1.0)}, "--scale must be two factors"),
    "flip": ({"flip": 1.5}, "--flip must lie between 0 and 1"),
    "weights twice": ({"checkpoint": Path("a"), "pretrained": True}, "--checkpoint and --pretrained"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_settings_are_refused(kind: str, tmp_path: Path) -> None:
    changes, message = WRONG[kind]
    with pytest.raises(mjp.InputError, match=message):
        settings(tmp_path, tmp_path, **changes)


def test_a_batch_larger_than_the_data_is_refused(camvid: Path, tmp_path: Path) -> None:
    with pytest.raises(mjp.InputError, match="lower --batch-size to 8"):
        segment(settings(camvid, tmp_path / "run", batch_size=9))


def test_ade20k_has_no_test_pictures(tmp_path: Path) -> None:
    data = write_scenes(tmp_path / "data", layout=ADE20K)
    with pytest.raises(mjp.InputError, match="has no test pictures"):
        segment(settings(data, tmp_path / "run", split="test"))
