"""What the training engine costs over a bare PyTorch loop, and MJP over plain training.

The same model, the same batch in memory; the alternatives take turns step by step, and the medians are compared.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mjp.bench.timing import medians
from mjp.common.distributed import World
from mjp.common.runs.recipe import load_recipe
from mjp.training.arguments import config_from
from mjp.training.config import TrainConfig
from mjp.training.engine import Run

REPEATS = 40  # training steps of each kind


def measure(repeats: int, _: int) -> dict[str, Any]:
    """engine_overhead_percent and mjp_train_overhead_percent, with the medians they come from."""
    with tempfile.TemporaryDirectory() as folder:
        plain, mjp = (_run(preset, Path(folder)) for preset in ("plain", "paper"))
        images, labels = _batch(plain.step_size)
        times = medians(
            repeats,
            "training steps",
            bare=_bare_loop(_run("plain", Path(folder)), images, labels),
            plain=_engine_step(plain, images, labels),
            mjp=_engine_step(mjp, images, labels),
        )
    return {
        "engine_overhead_percent": round(100 * (times["plain"] / times["bare"] - 1), 2),
        "mjp_train_overhead_percent": round(100 * (times["mjp"] / times["plain"] - 1), 2),
        "bare_step_ms": round(times["bare"], 1),
        "plain_step_ms": round(times["plain"], 1),
        "mjp_step_ms": round(times["mjp"], 1),
        "train_batch": plain.step_size,
        "train_repeats": repeats,
    }


def lines(figures: dict[str, Any]) -> list[str]:
    return [
        f"training engine   {figures['engine_overhead_percent']:+.2f} % over a bare PyTorch loop",
        f"MJP               {figures['mjp_train_overhead_percent']:+.2f} % over plain training",
    ]


def training_step(preset: str, folder: Path) -> Callable[[], None]:
    """One step of the training engine on a batch in memory."""
    run = _run(preset, folder)
    return _engine_step(run, *_batch(run.step_size))


def _batch(pictures: int) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.randn(pictures, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return images, torch.arange(pictures) % 10


def _run(preset: str, folder: Path) -> Run:
    """The model of the mini_cifar10 recipe; its data are not looked at."""
    values = load_recipe("mini_cifar10") | {"data": "embedded", "preset": preset, "out": str(folder / preset)}
    config: TrainConfig = config_from(values)
    return Run(config, World(0, 1, torch.device("cpu")))


def _engine_step(run: Run, images: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    network, unreadable = run.network(), torch.full((len(labels),), -1)

    def step() -> None:
        run.update(network, [(images, labels, unreadable)])
        run.step += 1

    return step


def _bare_loop(run: Run, images: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    """What one would write by hand: forward, loss, backward, clip, step."""
    model, optimizer, criterion = run.model.unwrap().train(), run.optimizer, run.criterion

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(images), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()

    return step
