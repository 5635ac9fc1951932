"""Pictures as people have them: they go in as a person sees them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mjp.pictures.decode import open_picture
from mjp.pictures.sheet import contact_sheet

RAMP = np.linspace(0, 255, 32).round().astype(np.uint8)[:, None].repeat(32, 1)  # dark above, light below


def opened(picture: Image.Image, path: Path, **options: Any) -> torch.Tensor:
    picture.save(path, **options)
    return open_picture(path, 32)[0]  # (3, 32, 32)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    deep = Image.fromarray(RAMP.astype(np.uint16) * 257)
    found = opened(deep, tmp_path / "deep.png")
    torch.testing.assert_close(found, torch.from_numpy(RAMP / 255).float().expand(3, -1, -1))


@pytest.mark.parametrize(("turn", "back"), [(3, 180), (6, 90), (8, 270)])
def test_a_turned_photograph_stands_upright(turn: int, back: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    upright = Image.fromarray(RAMP)
    found = opened(upright.rotate(back), tmp_path / "turned.png", exif=exif)
    torch.testing.assert_close(found[0], torch.from_numpy(RAMP / 255).float())


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_what_cannot_be_seen_does_not_show(mode: str, tmp_path: Path) -> None:
    white = Image.new("RGBA", (32, 32), (255, 255, 255, 0))
    white.paste((255, 255, 255, 255), (0, 0, 16, 32))
    found = opened(white.convert(mode), tmp_path / ("clear.tif" if mode == "PA" else "clear.png"))
    assert found[:, :, :16].min() == 1
    assert found[:, :, 16:].max() == 0


def test_a_sheet_holds_pictures_words_and_captions_without_overlap() -> None:
    black = torch.zeros(3, 32, 32)
    rows: dict[str, list[torch.Tensor | str]] = {"one": [black, "refused: " + "why " * 200], "two": [black, black]}
    captions = {"one": ["9.1 dB", ""], "two": ["words enough for several lines below", "8.0 dB"]}
    sheet = contact_sheet(rows, ["picture", "a title of several lines"], title="t", captions=captions, least=160)
    pixels = np.asarray(sheet.convert("L"))
    dark = (pixels == 0).sum()
    assert dark == 3 * 160 * 160  # nothing is written across a picture, and 32 pixels are enlarged to 160
    plain = contact_sheet(rows, ["picture", "title"], title="t", least=160)
    assert sheet.height > plain.height
    assert sheet.width == plain.width
