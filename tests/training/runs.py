"""Small pictures and small runs, for the tests of training and of the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from mjp.common.distributed import World
from mjp.training.arguments import config_from
from mjp.training.config import TrainConfig
from mjp.training.engine import Run, train

TINY_VIT = ("patch_size=8", "embed_dim=24", "depth=1", "num_heads=2")
ALONE = World(0, 1, torch.device("cpu"))
TIMING = {"images_per_second", "waiting_for_data_percent"}

# every random part of training at once
RANDOM = {
    **{"mixup": 0.8, "cutmix": 1.0, "repeated_aug": 3, "drop": 0.1, "drop_path": 0.3, "reprob": 0.25},
    **{"aa": "rand-m9-mstd0.5-inc1", "model_ema": True, "model_ema_decay": 0.9},
}


def make_pictures(root: Path, *, size: int = 16, train: int = 24, val: int = 8) -> Path:
    """train/CLASS/*.png and val/CLASS/*.png of two classes: noise, one of them brighter."""
    noise = np.random.default_rng(0)
    for split, count in (("train", train), ("val", val)):
        for label, name in enumerate(("dark", "bright")):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = noise.integers(0, 192, (size, size, 3), dtype=np.uint8) + np.uint8(label * 63)
                Image.fromarray(pixels).save(folder / f"{number:02}.png")
    return root


def settings(data: Path, out: Path, **changes: Any) -> TrainConfig:
    """A run of two epochs of six steps that takes a fraction of a second."""
    values: dict[str, Any] = {
        **{"data": str(data), "out": str(out), "model_kwargs": TINY_VIT, "input_size": 16, "epochs": 2},
        **{"batch_size": 8, "workers": 0, "device": "cpu", "lr": 0.03, "warmup_epochs": 1, "log_every": 1},
        **{
            "aa": None,
            "color_jitter": 0.0,
            "reprob": 0.0,
            "mixup": 0.0,
            "cutmix": 0.0,
            "repeated_aug": 1,
            "drop_path": 0.0,
        },
        "mjp": {"ratio": 0.5},
    }
    mjp = values["mjp"] | changes.pop("mjp", {})
    return config_from({**values, **changes, "mjp": mjp})


def weights(run: Path) -> bytes:
    """The trained model of a run, bit for bit."""
    return (run / "model" / "model.safetensors").read_bytes()


def tensors(run: Path) -> dict[str, Tensor]:
    return load_file(run / "model" / "model.safetensors")


def metrics(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what depends on the clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMING} for line in lines]


def started(config: TrainConfig) -> Run:
    """A run that is set up and has not made a step."""
    return Run(config, ALONE)


def train_task(config: TrainConfig) -> None:
    train(config)
