"""A folder of pictures, a tiny model that can index them, and files that only look like pictures."""

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from aladin.tiny import backbone, captioned_pictures, settings
from mjp.aladin.data.captions import load_captions
from mjp.aladin.index.intake import index_pictures
from mjp.aladin.index.report import IndexReport
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.training.build import fresh_model


def make_model(home: Path) -> Aladin:
    """A model on a tiny MJP backbone with a 4×4 grid, saved in home/model and loaded from there."""
    data = captioned_pictures(home / "data", train=6, others=1)
    backbone(home / "backbone")
    fresh_model(settings(data, home), load_captions(data)).save(home / "model")
    return Aladin.load(home / "model")


def draw_picture(path: Path, seed: int) -> None:
    """Nine fields of random colours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colours = np.random.default_rng(seed).integers(0, 255, (3, 3, 3), dtype=np.uint8)
    Image.fromarray(colours).resize((48, 40), Image.Resampling.NEAREST).save(path)


def make_gallery(folder: Path, count: int = 10) -> Path:
    for number in range(count):
        draw_picture(folder / ("a" if number % 2 else "b") / f"{number:02}.png", number)
    return folder


def declared_png(width: int, height: int) -> bytes:
    """A few bytes that claim to be a picture of this size."""

    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(b"")) + part(b"IEND", b"")


def take_in(
    pictures: Path, out: Path, model: Aladin, *, mask_ratio: float = 0.0, prune: bool = False
) -> tuple[Index, IndexReport]:
    report = index_pictures(pictures, out, model=model, mask_ratio=mask_ratio, prune=prune, workers=0, device="cpu")
    return report.index, report
