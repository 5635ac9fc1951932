"""One decoder: files of every depth, turned or transparent, give every command the pixels that a viewer shows."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from mjp.aladin.model.vision import Vision
from mjp.common.distributed import World
from mjp.common.errors import InputError
from mjp.evaluation.batches import batches
from mjp.evaluation.robustness.sets import Labelled
from mjp.models import find_model
from mjp.pictures.crop import float_square, open_square
from mjp.pictures.decode import UnreadablePicture, first_readable, open_rgb, read_png
from mjp.pictures.sets import Folder
from mjp.pictures.tensors import denormalise, to_tensor
from mjp.privacy.samples import sample_pictures
from mjp.training.data import Augmented
from mjp.training.evaluate import Unreadable

RAMP = np.linspace(0, 1, 30 * 20).reshape(20, 30)


def decoded(path: Path) -> NDArray[np.uint8]:
    """(H, W, 3) values of 0..255."""
    return np.array(open_rgb(path))


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
    found = decoded(tmp_path / name)
    assert found.shape == (20, 30, 3)
    assert np.abs(found - RAMP[..., None] * 255).max() <= 1


def test_16_bits_that_are_dark_stay_dark(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 2570, np.uint16)).save(tmp_path / "a.png")
    assert (decoded(tmp_path / "a.png") == 10).all()


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, 999.0, np.nan, np.inf])
def test_floats_of_one_value_or_of_none_are_pictures(tmp_path: Path, value: float) -> None:
    Image.fromarray(np.full((4, 4), value, np.float32)).save(tmp_path / "a.tif")
    assert (decoded(tmp_path / "a.tif") == (128 if value == 0.5 else 0)).all()


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
    assert [np.unique(decoded(tmp_path / f"faint{end}.png")).tolist() for end in ("", " grey")] == [[51], [51]]
    for name in ("clear", "palette", "colour", "grey"):
        assert not decoded(tmp_path / f"{name}.png").any(), name


@pytest.mark.parametrize(
    "kind", ["RGB.png", "RGB.jpg", "L.png", "L.jpg", "P.png", "P.gif", "1.png", "CMYK.jpg", "CMYK.tif", "RGBA.png"]
)
@pytest.mark.parametrize("orientation", [1, 6])
def test_ordinary_pictures_are_not_touched(tmp_path: Path, kind: str, orientation: int) -> None:
    drawn, exif = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8), Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / kind
    Image.fromarray(drawn).convert(path.stem).save(path, exif=exif)
    with Image.open(BytesIO(path.read_bytes())) as file:  # given a path, Pillow turns an uncompressed CMYK TIFF wrongly
        plain = ImageOps.exif_transpose(file).convert("RGB")
    assert open_rgb(path).tobytes() == plain.tobytes()


def test_what_phones_write_is_read_with_the_package_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    white(255).save(tmp_path / "phone.HEIC", "PNG")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(InputError, match="pip install pillow-heif"):
        open_rgb(tmp_path / "phone.HEIC")
    registered: list[bool] = []
    package = SimpleNamespace(register_heif_opener=lambda: registered.append(True))
    monkeypatch.setitem(sys.modules, "pillow_heif", package)
    assert open_rgb(tmp_path / "phone.HEIC").size == (4, 4)
    assert registered


@pytest.mark.parametrize(("turn", "back"), [(3, 180), (6, 90), (8, 270)])
def test_a_turned_photograph_stands_upright(turn: int, back: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    upright = Image.fromarray((RAMP * 255).astype(np.uint8))
    upright.rotate(back, expand=True).save(tmp_path / "turned.png", exif=exif)
    assert (decoded(tmp_path / "turned.png")[..., 0] == np.asarray(upright)).all()


def odd_pictures(folder: Path) -> None:
    """32 x 32 pixels, so that no command resizes them."""
    ramp = np.linspace(0, 1, 32 * 32).reshape(32, 32)
    colours = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
    Image.fromarray(colours).save(folder / "a" / "turned.png", exif=exif)
    Image.fromarray((ramp * 65535).astype(np.uint16)).save(folder / "a" / "deep.png")
    Image.fromarray(ramp.astype(np.float32)).save(folder / "a" / "float.tif")
    Image.fromarray(colours).quantize(16).save(folder / "b" / "palette.png", transparency=3)
    alpha = Image.fromarray((ramp * 255).astype(np.uint8))
    clear = Image.fromarray(colours)
    clear.putalpha(alpha)
    clear.save(folder / "b" / "clear.png")


def test_every_command_sees_the_same_pixels(tmp_path: Path) -> None:
    odd_pictures(tmp_path)
    pictures, subject = Folder(tmp_path), find_model("mini-cifar10-mjp")
    assert subject.size == (32, 32)
    expected = torch.stack([to_tensor(open_rgb(path)) for path in pictures.paths])
    vision = Vision("any", torch.nn.Identity(), (32, 32), subject.mean, subject.std)
    training = Augmented(pictures, to_tensor, training=True)
    loaded = batches(
        subject, pictures, size=9, limit=None, workers=0, unreadable=Unreadable(0, World(0, 1, torch.device("cpu")))
    )
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "training": lambda: torch.stack([training[n, 0][0] for n in range(len(pictures))]),
        "robustness": lambda: torch.stack([to_tensor(Labelled(tmp_path, ["a", "b"]).load(n)) for n in range(5)]),
        "evaluation": lambda: denormalise(next(iter(loaded))[0], subject.mean, subject.std),
        "prior": lambda: sample_pictures(pictures, 5, (32, 32)),
        "audit": lambda: torch.stack([float_square(pictures.load(n), (32, 32)) for n in range(5)]),
        "attack": lambda: torch.cat([open_square(path, 32) for path in pictures.paths]),
        "search": lambda: denormalise(
            torch.stack([vision.prepare(open_rgb(path)) for path in pictures.paths]), subject.mean, subject.std
        ),
    }
    for name, way in ways.items():
        torch.testing.assert_close(way(), expected, atol=1e-6, rtol=0, msg=name)
    assert expected.unique().numel() > 200


def test_pictures_are_opened_in_one_place() -> None:
    source = Path(mjp.__file__).parent
    openers = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"\bImage\.open\(|imread|decode_image", path.read_text())
    }
    assert openers == {"pictures/decode.py"}


def special_files(folder: Path) -> list[Path]:
    os.mkfifo(folder / "pipe.png")
    (folder / "folder.png").mkdir()
    (folder / "device.png").symlink_to("/dev/zero")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "socket.png"))
    server.close()
    return sorted(folder.iterdir())


def test_what_is_not_a_file_is_refused_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    for path in special_files(tmp_path):
        with pytest.raises(UnreadablePicture, match=re.escape(str(path))):
            open_rgb(path)
        with pytest.raises((InputError, OSError)):
            read_png(path)
    assert time.monotonic() - began < 2


def test_pixels_are_counted_before_they_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "wide.png"
    Image.new("1", (13_000, 8_000)).save(path)
    assert path.stat().st_size < 50_000
    monkeypatch.setattr(Image.Image, "load", None)  # decoding would fail
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", None)
    with pytest.raises(UnreadablePicture, match="13000 x 8000 pixels are more than the limit of 100 million"):
        open_rgb(path)


def test_the_limit_is_an_argument_or_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (20, 10)).save(path)
    assert open_rgb(path, max_pixels=200).size == (20, 10)
    with pytest.raises(UnreadablePicture):
        open_rgb(path, max_pixels=199)
    monkeypatch.setenv("MJP_MAX_PIXELS", "199")
    with pytest.raises(UnreadablePicture, match="MJP_MAX_PIXELS"):
        open_rgb(path)
    assert first_readable([path]) is None
    for nonsense in ("0", "-1", "1e6", "9" * 5000, "²"):
        monkeypatch.setenv("MJP_MAX_PIXELS", nonsense)
        with pytest.raises(InputError, match="MJP_MAX_PIXELS must be"):
            open_rgb(path)


def test_the_limit_of_pillow_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("L", (64, 64)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert open_rgb(tmp_path / "a.png").size == (64, 64)
    assert Image.MAX_IMAGE_PIXELS == 1000


def test_a_jpeg_is_decoded_no_larger_than_needed(tmp_path: Path) -> None:
    Image.effect_noise((1000, 600), 40).convert("RGB").save(tmp_path / "a.jpg")
    assert open_rgb(tmp_path / "a.jpg").size == (1000, 600)
    assert open_rgb(tmp_path / "a.jpg", at_least=100).size == (250, 150)


PEAK = """
import resource, sys
from pathlib import Path
from mjp.pictures.decode import open_rgb
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert open_rgb(Path(sys.argv[1])).mode == "RGB"
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "I;16", "P"])
def test_decoding_takes_at_most_twelve_bytes_a_pixel(tmp_path: Path, mode: str) -> None:
    side = 4000
    Image.new(mode, (side, side)).save(tmp_path / "a.png", transparency=0 if mode == "P" else None)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "a.png")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) * 1024 < 12 * side**2
