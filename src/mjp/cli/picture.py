"""Pictures in and out of tensors, a picture for those who bring none, and labelled contact sheets."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError
from torch import Tensor

from mjp.errors import InputError
from mjp.seen import as_seen

INK, PAPER, BLANK = (30, 30, 30), (255, 255, 255), (237, 237, 237)
GAP, LINE, SMALL = 12, 22, 17  # pixels: between tiles, of a line, of a line of small letters


def open_picture(path: Path, size: int) -> Tensor:
    """A picture file as (1, 3, size, size) in [0, 1], its middle square."""
    try:
        with Image.open(path) as file:
            picture = as_seen(file)
    except FileNotFoundError as error:
        raise InputError(f"there is no picture {path}") from error
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} cannot be read as a picture: {error}") from error
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    picture = picture.resize((size, size), Image.Resampling.BICUBIC, (left, top, left + side, top + side))
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).unsqueeze(0) / 255


def landscape(size: int) -> Tensor:
    """A drawn landscape, (1, 3, size, size) in [0, 1]: sky, sun, hills and a house, so that one sees what has moved."""
    big = 4 * size
    rows = np.linspace(0, 1, big)[:, None, None]
    sky = np.array([70, 130, 200]) * (1 - rows) + np.array([250, 215, 170]) * rows
    picture = Image.fromarray(np.broadcast_to(sky, (big, big, 3)).astype(np.uint8))
    draw = ImageDraw.Draw(picture)

    def at(*points: tuple[float, float]) -> list[tuple[float, float]]:
        return [(x * big, y * big) for x, y in points]

    draw.ellipse(at((0.66, 0.1), (0.84, 0.28)), fill=(255, 236, 150))
    draw.polygon(
        at((0, 0.62), (0.2, 0.34), (0.36, 0.52), (0.55, 0.28), (0.8, 0.55), (1, 0.42), (1, 1), (0, 1)), (95, 110, 150)
    )
    draw.polygon(at((0.2, 0.34), (0.15, 0.42), (0.21, 0.4), (0.26, 0.42)), fill=(240, 244, 250))
    draw.polygon(at((0.55, 0.28), (0.48, 0.37), (0.55, 0.35), (0.62, 0.37)), fill=(240, 244, 250))
    draw.ellipse(at((-0.4, 0.62), (0.75, 1.6)), fill=(70, 140, 80))
    draw.ellipse(at((0.35, 0.68), (1.5, 1.7)), fill=(95, 165, 85))
    draw.rectangle(at((0.56, 0.62), (0.76, 0.8)), fill=(225, 200, 165))
    draw.polygon(at((0.53, 0.63), (0.66, 0.5), (0.79, 0.63)), fill=(170, 60, 50))
    draw.rectangle(at((0.63, 0.7), (0.69, 0.8)), fill=(110, 70, 50))
    draw.rectangle(at((0.58, 0.66), (0.62, 0.7)), fill=(120, 180, 220))
    draw.rectangle(at((0.7, 0.66), (0.74, 0.7)), fill=(120, 180, 220))
    for x in (0.08, 0.2, 0.32, 0.9):
        draw.rectangle(at((x - 0.012, 0.76), (x + 0.012, 0.86)), fill=(100, 70, 50))
        draw.polygon(at((x - 0.07, 0.78), (x, 0.58), (x + 0.07, 0.78)), fill=(35, 95, 60))
    small = picture.resize((size, size), Image.Resampling.LANCZOS)
    return torch.from_numpy(np.array(small)).permute(2, 0, 1).unsqueeze(0) / 255


def contact_sheet(
    rows: dict[str, list[Tensor]] | dict[str, list[Tensor | str]],
    columns: list[str],
    *,
    title: str,
    captions: dict[str, list[str]] | None = None,
    least: int = 1,
) -> Image.Image:
    """(3, S, S) pictures in [0, 1] under labelled rows and columns; words instead of a picture fill its place.

    `captions` stand below the pictures; pictures smaller than `least` pixels are enlarged by a whole factor.
    """
    font, small = ImageFont.load_default(15), ImageFont.load_default(13)
    tiles = [tile for row in rows.values() for tile in row]
    own = next(tile.shape[-1] for tile in tiles if not isinstance(tile, str))
    side = own * max(1, least // own)
    heads = [_wrapped(label, font, side) for label in columns]
    below = {name: [_wrapped(text, small, side) for text in texts] for name, texts in (captions or {}).items()}
    depth = {
        name: SMALL * max((len(text.split("\n")) for text in below.get(name, []) if text), default=0) for name in rows
    }
    head = LINE * (1 + max(len(text.split("\n")) for text in heads))
    margin = GAP + max(int(font.getlength(label)) for label in rows) + GAP
    width = max(margin + len(columns) * (side + GAP), 2 * GAP + int(font.getlength(title)))
    sheet = Image.new("RGB", (width, GAP + head + sum(side + depth[name] + GAP for name in rows)), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, GAP), title, INK, font)
    for c, label in enumerate(heads):
        draw.text((margin + c * (side + GAP) + side / 2, GAP + LINE), label, INK, font, anchor="ma", align="center")
    top = GAP + head
    for name, row in rows.items():
        draw.text((GAP, top + side / 2), name, INK, font, anchor="lm")
        for c, tile in enumerate(row):
            left = margin + c * (side + GAP)
            sheet.paste(_written(tile, side, small) if isinstance(tile, str) else _shown(tile, side), (left, top))
            text = below[name][c] if name in below else ""
            draw.text((left + side / 2, top + side + 2), text, INK, small, anchor="ma", align="center")
        top += side + depth[name] + GAP
    return sheet


def _shown(picture: Tensor, side: int) -> Image.Image:
    pixels = (picture.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous()
    return Image.fromarray(pixels.numpy()).resize((side, side), Image.Resampling.NEAREST)


def _written(text: str, side: int, font: Any) -> Image.Image:
    """A grey tile with words on it, as many lines as fit."""
    tile = Image.new("RGB", (side, side), BLANK)
    lines = _wrapped(text, font, side - 2 * GAP).split("\n")
    fit = (side - 2 * GAP) // SMALL
    words = "\n".join(lines if len(lines) <= fit else [*lines[: fit - 1], "…"])
    ImageDraw.Draw(tile).multiline_text((GAP, GAP), words, INK, font)
    return tile


def _wrapped(text: str, font: Any, width: int) -> str:
    """Line breaks so that no line is wider, as far as words allow."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(lines)
