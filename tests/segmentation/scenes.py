"""Small pictures whose colours are their classes, and small runs on them."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mjp.segmentation.config import SegmentConfig
from mjp.segmentation.train import segment

CLASSES = ("red", "green", "blue")
COLOURS = np.array([[200, 40, 40], [40, 200, 40], [40, 40, 200]])
CAMVID = {split: (f"{split}/images", f"{split}/masks") for split in ("train", "val", "test")}
ADE20K = {
    "train": ("images/training", "annotations/training"),
    "val": ("images/validation", "annotations/validation"),
}
TINY_SWIN = ("embed_dim=16", "depths=(1,1,1,1)", "num_heads=(1,1,2,2)", "window_size=2", "img_size=64")
TIMING = {"images_per_second", "waiting_for_data_percent"}


def scene(seed: int, size: tuple[int, int] = (64, 64)) -> tuple[Image.Image, NDArray[np.uint8]]:
    """Three vertical bands in random order, with noise; (picture, classes)."""
    noise = np.random.default_rng(seed)
    height, width = size
    classes = np.repeat(noise.permutation(3), -(-width // 3))[:width][None].repeat(height, 0).astype(np.uint8)
    pixels = COLOURS[classes] + noise.integers(-40, 41, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), classes


def write_scenes(
    root: Path, *, layout: dict[str, tuple[str, str]] = CAMVID, count: int = 8, size: tuple[int, int] = (64, 64)
) -> Path:
    """A data set in one of the layouts; the top row of every mask is void."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    first, void = (0, len(CLASSES)) if layout is CAMVID else (1, 0)
    for offset, (pictures, masks) in enumerate(layout.values()):
        for folder in (pictures, masks):
            (root / folder).mkdir(parents=True)
        for number in range(count):
            picture, classes = scene(100 * offset + number, size)
            picture.save(root / pictures / f"{number}.png")
            labels = classes + first
            labels[0] = void
            Image.fromarray(labels.astype(np.uint8)).save(root / masks / f"{number}.png")
    return root


def settings(data: Path, out: Path, **changes: Any) -> SegmentConfig:
    """A run of two epochs of four steps that takes a second or two."""
    values: dict[str, Any] = {
        **{"data": data, "out": out, "model": "swin_tiny_patch4_window7_224", "model_kwargs": TINY_SWIN},
        **{"decoder_channels": 16, "drop_path": 0.2, "crop": 64, "scale": (0.8, 1.2), "epochs": 2, "batch_size": 2},
        **{"lr": 3e-3, "warmup_epochs": 0, "workers": 0, "device": "cpu", "eval_every": 1, "log_every": 1},
    }
    return SegmentConfig(**{**values, **changes})


def segment_task(config: SegmentConfig) -> None:
    segment(config)
