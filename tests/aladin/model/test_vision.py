"""Picture files of every depth, with and without transparency, look as a viewer shows them."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from mjp.aladin.model.vision import open_picture
from mjp.common.errors import InputError

RAMP = np.linspace(0, 1, 30 * 20).reshape(20, 30)


def seen(path: Path) -> NDArray[np.uint8]:
    """(H, W, 3) values of 0..255."""
    return np.array(open_picture(path))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("16 bits.png", (RAMP * 65535).astype(np.uint16)),
        ("16 bits.tif", (RAMP * 65535).astype(np.uint16)),
        ("floats in the unit interval.tif", RAMP.astype(np.float32)),
        ("floats of bytes.tif", (RAMP * 255).astype(np.float32)),
        ("floats of their own.tif", (RAMP * 7000 - 3000).astype(np.float32)),
        ("integers of bytes.tif", (RAMP * 255).round().astype(np.int32)),
        ("integers of their own.tif", (RAMP * 1e6 - 1000).astype(np.int32)),
    ],
)
def test_deep_pictures_keep_their_greys(tmp_path: Path, name: str, values: NDArray[Any]) -> None:
    Image.fromarray(values).save(tmp_path / name)
    found = seen(tmp_path / name)
    assert found.shape == (20, 30, 3)
    assert np.abs(found - RAMP[..., None] * 255).max() <= 1


def test_16_bits_that_are_dark_stay_dark(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 2570, np.uint16)).save(tmp_path / "a.png")
    assert (seen(tmp_path / "a.png") == 10).all()


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, 999.0, np.nan, np.inf])
def test_floats_of_one_value_or_of_none_are_pictures(tmp_path: Path, value: float) -> None:
    Image.fromarray(np.full((4, 4), value, np.float32)).save(tmp_path / "a.tif")
    assert (seen(tmp_path / "a.tif") == (128 if value == 0.5 else 0)).all()


def white(alpha: int) -> Image.Image:
    return Image.new("RGBA", (4, 4), (255, 255, 255, alpha))


def test_transparent_parts_lie_on_black(tmp_path: Path) -> None:
    white(0).save(tmp_path / "clear.png")
    white(51).save(tmp_path / "faint.png")
    white(51).convert("LA").save(tmp_path / "faint grey.png")
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, 255, 255, 255])
    palette.save(tmp_path / "palette.png", transparency=1)
    Image.new("RGB", (4, 4), "white").save(tmp_path / "colour.png", transparency=(255, 255, 255))
    Image.new("L", (4, 4), 255).save(tmp_path / "grey.png", transparency=255)
    assert [np.unique(seen(tmp_path / f"faint{end}.png")).tolist() for end in ("", " grey")] == [[51], [51]]
    for name in ("clear", "palette", "colour", "grey"):
        assert not seen(tmp_path / f"{name}.png").any(), name


@pytest.mark.parametrize(
    "kind", ["RGB.png", "RGB.jpg", "L.png", "L.jpg", "P.png", "P.gif", "1.png", "CMYK.jpg", "CMYK.tif", "RGBA.png"]
)
@pytest.mark.parametrize("orientation", [1, 6])
def test_ordinary_pictures_are_not_touched(tmp_path: Path, kind: str, orientation: int) -> None:
    drawn, exif = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8), Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / kind
    Image.fromarray(drawn).convert(path.stem).save(path, exif=exif)
    with Image.open(path) as file:
        plain = ImageOps.exif_transpose(file).convert("RGB")
    assert open_picture(path).tobytes() == plain.tobytes()


def test_what_phones_write_is_read_with_the_package_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    white(255).save(tmp_path / "phone.HEIC", "PNG")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(InputError, match="pip install pillow-heif"):
        open_picture(tmp_path / "phone.HEIC")
    registered: list[bool] = []
    package = SimpleNamespace(register_heif_opener=lambda: registered.append(True))
    monkeypatch.setitem(sys.modules, "pillow_heif", package)
    assert open_picture(tmp_path / "phone.HEIC").size == (4, 4)
    assert registered
