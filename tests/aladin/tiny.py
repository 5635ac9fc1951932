"""A tiny retrieval model, and pictures with captions that it can learn in a second."""

import mjp  # isort: skip  before timm

import json
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from torch import Tensor

from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.config import AladinConfig
from mjp.aladin.model.text import TrainedTextEncoder, Words
from mjp.aladin.model.text_encoders import text_encoder_module
from mjp.aladin.model.tokens import Tokens
from mjp.aladin.training.config import AladinTraining, config_from

COLOURS = {
    **{"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "yellow": (230, 220, 40)},
    **{"white": (240, 240, 240), "black": (10, 10, 10)},
}
WIDTH = 12  # of the backbone's tokens in tests that need no backbone


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


def tokens(batch: int = 3, patches: int = 5, seed: int = 0) -> Tokens:
    everywhere = torch.ones(batch, patches, dtype=torch.bool)
    found = noise(batch, patches, WIDTH, seed=seed)
    return Tokens(found.mean(1), found, everywhere, ~everywhere)


def words(batch: int = 3, length: int = 4, width: int = 16, seed: int = 1) -> Words:
    found = noise(batch, length, width, seed=seed)
    return Words(found.mean(1), found, torch.ones(batch, length, dtype=torch.bool))


def tiny_model(**changes: Any) -> Aladin:
    config = AladinConfig(**{"width": 16, "heads": 2, "align_width": 8, "vocabulary": 120, "layers": 1, **changes})
    text = text_encoder_module("pieces").create(config, ["a red dog on the beach", "the green beach"] * 3)
    assert isinstance(text, TrainedTextEncoder)
    return Aladin(config, {"weights": "none"}, WIDTH, text).eval()


def backbone(folder: Path) -> Path:
    """A tiny MJP-wrapped ViT on a 4×4 grid, saved."""
    vit = timm.create_model(
        "deit_small_patch16_224", img_size=32, patch_size=8, depth=1, embed_dim=24, num_heads=2, num_classes=2
    )
    mjp.MJP(vit, "paper").eval().save_pretrained(folder)
    return folder


def captioned_pictures(folder: Path, *, train: int = 24, others: int = 12) -> Path:
    """Noisy pictures, upper half of one colour and lower half of another, with two captions each."""
    drawn = np.random.default_rng(0)
    names, facts = list(COLOURS), {}
    (folder / "images").mkdir(parents=True)
    for split, count in (("train", train), ("dev", others), ("test", others)):
        for number in range(count):
            above, below = names[number % 6], names[(number // 6 + number + 1) % 6]
            pixels = np.zeros((32, 32, 3), np.uint8)
            pixels[:16], pixels[16:] = COLOURS[above], COLOURS[below]
            pixels += drawn.integers(0, 15, pixels.shape, dtype=np.uint8)
            name = f"{split}{number:02}.png"
            Image.fromarray(pixels).save(folder / "images" / name)
            captions = [f"{above} sky over {below} ground", f"the {below} ground below a {above} sky ."]
            facts[name] = {"split": split, "captions": captions}
    (folder / "captions.json").write_text(json.dumps(facts))
    return folder


def settings(data: Path, home: Path, **changes: Any) -> AladinTraining:
    """A run of six steps that takes a fraction of a second; `home` holds the backbone and everything written."""
    values: dict[str, Any] = {
        **{"data": data, "out": home / "run", "cache": home / "cache", "device": "cpu", "workers": 0},
        **{"epochs": 2, "batch_size": 8, "lr": 3e-3, "hard_warmup": 1.0, "log_every": 1, "views": 2},
    }
    model = {"backbone": str(home / "backbone"), "width": 16, "heads": 2, "align_width": 8, "vocabulary": 200}
    return config_from({**values, **changes, "model": {**model, "layers": 1, **changes.pop("model", {})}})
