"""Labelled contact sheets."""

from typing import Any

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from mjp.pictures.tensors import to_image

INK, PAPER, BLANK = (30, 30, 30), (255, 255, 255), (237, 237, 237)
GAP, LINE, SMALL = 12, 22, 17  # pixels: between tiles, of a line, of a line of small letters


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
            sheet.paste(_written(tile, side, small) if isinstance(tile, str) else _enlarged(tile, side), (left, top))
            text = below[name][c] if name in below else ""
            draw.text((left + side / 2, top + side + 2), text, INK, small, anchor="ma", align="center")
        top += side + depth[name] + GAP
    return sheet


def _enlarged(picture: Tensor, side: int) -> Image.Image:
    return to_image(picture).resize((side, side), Image.Resampling.NEAREST)


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
