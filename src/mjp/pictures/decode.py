"""The only place that opens picture files: every command sees the same pixels of a file.

A picture is turned as its EXIF mark says, made 8 bits deep, and laid on black where it is transparent. How many pixels
it has is read from its header before anything is decoded: a small file can hold more than fits into memory.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from mjp.common.errors import InputError
from mjp.common.files import open_regular

EXTENSIONS = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".gif", ".tif", ".tiff", ".avif", ".heic", ".jp2"}
)
MAX_PIXELS = 100_000_000  # decoded: 0.4 GB, and as much again while it is converted
LIMIT = "MJP_MAX_PIXELS"  # the environment variable that replaces it
STRIP = 4_000_000  # pixels that are converted at a time
_pillow_limit = Lock()
Decoded = TypeVar("Decoded")


class UnreadablePicture(InputError):
    """A file that is not a picture, or not one that may be decoded here; `reason` does not name the file."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message, reason)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


def is_picture(path: Path) -> bool:
    """Whether a file is named like a picture."""
    return path.suffix.lower() in EXTENSIONS


def open_rgb(path: Path, *, max_pixels: int | None = None, at_least: int | None = None) -> Image.Image:
    """The picture in a file, in RGB.

    `max_pixels` defaults to the environment variable MJP_MAX_PIXELS, else to 100 million. If sides of `at_least` pixels
    are enough, a JPEG is decoded at ½, ¼ or ⅛ of its size, which takes a fraction of the time and memory.
    """

    def decode(file: Image.Image) -> Image.Image:
        if at_least is not None:
            file.draft(None, (at_least, at_least))
        return _as_rgb(file)

    return _open(path, max_pixels, decode)


def open_labels(path: Path) -> NDArray[np.int64]:
    """The (H, W) numbers in a label image, as they are stored.

    Grey values of any depth, or the indices of a palette, whose colours are for people: open_rgb would mix them up.
    """
    return _open(path, None, _as_labels)


def decode_rgb(content: bytes) -> Image.Image:
    """The same for a picture in memory that this package has encoded itself."""
    with Image.open(BytesIO(content)) as file:
        return _as_rgb(file)


def decode_upload(content: bytes, *, max_pixels: int | None = None) -> Image.Image:
    """The picture in bytes that somebody sent, in RGB."""
    limit = pixel_limit() if max_pixels is None else max_pixels
    try:
        with suppress(InputError):  # without the package such a picture is of no known kind
            _register_heic()
        with _header(BytesIO(content)) as file:
            _check_size(file, limit)
            return _as_rgb(file)
    except Exception as error:  # decoders raise all kinds of exceptions over broken files
        raise UnreadablePicture(f"this cannot be read as a picture: {_reason(error)}", _reason(error)) from error


def first_readable(
    paths: list[Path], *, max_pixels: int | None = None, at_least: int | None = None
) -> Image.Image | None:
    """The picture at the first path that can be read; None if there is none."""
    for path in paths:
        try:
            return open_rgb(path, max_pixels=max_pixels, at_least=at_least)
        except UnreadablePicture:
            continue
    return None


def read_png(path: Path) -> tuple[bytes, int, int]:
    """The content, width and height of a PNG file, checked as a whole but not decoded."""
    with open_regular(path) as file:
        content = file.read()
    try:
        with Image.open(BytesIO(content), formats=["PNG"]) as picture:
            width, height = picture.size
            picture.verify()
    except Exception as error:
        raise UnreadablePicture(f"{path} is not a complete PNG picture", "not a complete PNG picture") from error
    return content, width, height


def pixel_limit() -> int:
    """How many pixels a picture may have."""
    text = os.environ.get(LIMIT, "")
    if not text:
        return MAX_PIXELS
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 16 and int(text)):
        raise InputError(f"the environment variable {LIMIT} must be a whole number of at least 1, not {text[:40]!r}")
    return int(text)


def _open(path: Path, max_pixels: int | None, decode: Callable[[Image.Image], Decoded]) -> Decoded:
    """Open a file, check its size, and decode it; every failure names the file."""
    limit = pixel_limit() if max_pixels is None else max_pixels
    try:
        if path.suffix.lower() == ".heic":
            _register_heic()
        with open_regular(path) as content, _header(content) as file:
            _check_size(file, limit)
            return decode(file)
    except FileNotFoundError as error:
        raise UnreadablePicture(f"there is no picture {path}", "there is no such file") from error
    except Exception as error:  # decoders raise all kinds of exceptions over broken files
        reason = _reason(error).removeprefix(f"{path} is ")
        raise UnreadablePicture(f"{path} cannot be read as a picture: {reason}", reason) from error


def _header(file: Any) -> Image.Image:
    """Opened, not decoded. Pillow's own limit is off meanwhile: ours is checked next, and is the user's to raise."""
    with _pillow_limit:
        limit = Image.MAX_IMAGE_PIXELS
        Image.MAX_IMAGE_PIXELS = None
        try:
            return Image.open(file)
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _check_size(file: Image.Image, limit: int) -> None:
    width, height = file.size
    if width * height > limit:
        raise InputError(
            f"{width} x {height} pixels are more than the limit of {limit / 1e6:g} million pixels: make it smaller, or "
            f"raise the limit with the environment variable {LIMIT}"
        )


def _as_rgb(file: Image.Image) -> Image.Image:
    """Pillow alone would clip deep greys to white, and show the colours below transparency."""
    file.load()  # turns some kinds of files itself
    turned = file.getexif().get(ExifTags.Base.Orientation, 1) != 1
    picture = ImageOps.exif_transpose(file) if turned else file  # which copies
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        return _eight_bits(picture).convert("RGB")
    return _on_black(picture) if picture.has_transparency_data else picture.convert("RGB")


def _as_labels(file: Image.Image) -> NDArray[np.int64]:
    if file.mode not in ("1", "L", "P", "I") and not file.mode.startswith("I;16"):
        raise InputError(f"a mask must hold one number for each pixel (grey or palette), and this is {file.mode}")
    return np.asarray(file).astype(np.int64)


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Deep grey values as 0..255: 16 bits by 257, floats in [0, 1] by 255, values beyond 0..255 by their own range."""
    values = np.asarray(picture)
    if picture.mode.startswith("I;16"):
        table = (np.arange(2**16) / 257).round().astype(np.uint8)
        return Image.fromarray(table[values])
    finite = values if picture.mode == "I" else np.nan_to_num(values, posinf=0, neginf=0)
    low, high = float(finite.min()), float(finite.max())
    grey = np.empty(values.shape, np.uint8)
    for rows in _strips(picture.size):
        grey[rows] = _to_bytes(finite[rows].astype(np.float64), low, high, unit=picture.mode == "F")
    return Image.fromarray(grey)


def _to_bytes(values: NDArray[np.float64], low: float, high: float, *, unit: bool) -> NDArray[np.uint8]:
    if unit and low >= 0 and high <= 1:
        values = values * 255
    elif low < 0 or high > 255:
        values = (values - low) * (255 / max(high - low, 1e-9))
    return values.round().astype(np.uint8)


def _on_black(picture: Image.Image) -> Image.Image:
    opaque = Image.new("RGB", picture.size)
    opaque.info = picture.info
    for rows in _strips(picture.size):
        strip = picture.crop((0, rows.start, picture.width, rows.stop)).convert("RGBA")
        strip = Image.alpha_composite(Image.new("RGBA", strip.size, "black"), strip)
        opaque.paste(strip.convert("RGB"), (0, rows.start))
    return opaque


def _strips(size: tuple[int, int]) -> list[slice]:
    """Rows to convert at a time, so that intermediate values do not take a multiple of the picture's memory."""
    width, height = size
    step = max(STRIP // width, 1)
    return [slice(top, min(top + step, height)) for top in range(0, height, step)]


def _register_heic() -> None:
    """Have Pillow read what many phones write; the package for it is optional."""
    try:
        import_module("pillow_heif").register_heif_opener()
    except ImportError as error:
        raise InputError("HEIC pictures need a package: pip install pillow-heif") from error


def _reason(error: Exception) -> str:
    """Why a file cannot be read, in a few words."""
    if isinstance(error, UnidentifiedImageError):
        return "not a picture of a known kind"
    if isinstance(error, MemoryError):
        return "not enough memory"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:200] or type(error).__name__
