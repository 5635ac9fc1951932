"""Segmentation with the backbone of a trained run: UPerNet, as `mjp segment` trains it."""

from pathlib import Path
from typing import Any

import torch

from mjp.common.errors import InputError
from mjp.segmentation.config import SegmentConfig
from mjp.segmentation.folders import find_scenes
from mjp.segmentation.network import segmentation_models
from mjp.segmentation.train import segment


def check_scenes(folder: Path) -> None:
    """Refuse a folder without scenes, or a machine without UPerNet, before a backbone is trained for them."""
    try:
        find_scenes(folder)
    except InputError as error:
        raise InputError(f"--scenes: {error}") from error
    segmentation_models()


def measure_scenes(
    run: Path, scenes: Path, settings: dict[str, Any], seed: int, device: torch.device
) -> dict[str, float]:
    """{miou, macc} as shares; the segmentation run is kept beside the backbone's, and resumes as it does."""
    values = {"workers": 0, **settings, "scale": tuple(settings.get("scale", (0.5, 2.0))), "device": str(device)}
    results = segment(SegmentConfig(data=scenes, checkpoint=run, out=run / "segment", seed=seed, **values))
    assert results is not None  # only --stop-after ends a run early
    (figures,) = results.body["models"].values()
    return {name: figures[name][0] for name in ("miou", "macc")}
