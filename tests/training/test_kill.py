"""A run killed with SIGKILL, at whatever moment, continues to the same bits: weights and metrics."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from mjp.training.config import TrainConfig
from mjp.training.engine import train
from processes import PATIENCE, exit_code, start
from training.runs import RANDOM, metrics, settings, weights

EVERY_STEP = {**RANDOM, "checkpoint_minutes": 0}


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole") / "run"
    train(settings(data, run, **EVERY_STEP))
    return run


def assert_same(run: Path, whole: Path) -> None:
    assert weights(run) == weights(whole)
    assert metrics(run) == metrics(whole)
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"last.pt", "previous.pt"}


def fragile_task(config: TrainConfig, operations: int) -> None:
    """Train until a number of file operations: writing, syncing, renaming. Before the next one the process dies."""
    left = operations

    def dying(operation: Any) -> Any:
        def operate(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return operation(*arguments, **options)

        return operate

    os.replace, os.fsync, torch.save = dying(os.replace), dying(os.fsync), dying(torch.save)
    train(config)


def test_killed_before_any_file_operation_a_run_continues_to_the_same_bits(
    whole: Path, data: Path, tmp_path: Path
) -> None:
    config = settings(data, tmp_path, **EVERY_STEP)
    # opening a run takes 4 operations, a checkpoint 5 (4 if it is the first): each is the last one at least once
    points = [3, 4, 6, 7, 12, 9, 8, 11, 5, 10, 14, 21]
    codes = [exit_code(start(fragile_task, config, point)) for point in points]
    assert codes == [-signal.SIGKILL] * len(points)
    train(config)
    assert_same(tmp_path, whole)


def lines_in(run: Path) -> int:
    log = run / "metrics.jsonl"
    return len(log.read_bytes().splitlines()) if log.exists() else 0


def kill_after(process: "subprocess.Popen[bytes]", run: Path, lines: int, delay: float) -> None:
    """Wait until the log has grown by some lines, and a moment longer, then kill."""
    before, deadline = lines_in(run), time.monotonic() + PATIENCE
    while process.poll() is None and lines_in(run) < before + lines and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(delay)
    process.kill()
    process.wait()


def test_the_command_killed_at_random_moments_continues_to_the_same_bits(
    whole: Path, data: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(settings(data, tmp_path / "run", **EVERY_STEP).to_yaml())
    command = [sys.executable, "-m", "mjp", "train", "--recipe", str(recipe)]
    moments = random.Random(0)
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        kill_after(process, tmp_path / "run", moments.randint(1, 3), moments.uniform(0, 0.05))
    last = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert last.returncode == 0, last.stderr
    assert "continuing" in last.stdout
    assert_same(tmp_path / "run", whole)
