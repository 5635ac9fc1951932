"""Contact sheets: pictures in labelled rows and columns, with captions below."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from mjp.pictures.tensors import to_image

INK, PAPER, BLANK = (30, 30, 30), (255, 255, 255), (237, 237, 237)
GAP, LINE, SMALL = 12, 22, 17  # pixels: between tiles, height of a line, height of a line of a caption
TEXT_SIZE, CAPTION_SIZE = 15, 13  # of letters


class Row(NamedTuple):
    """Tiles side by side: square ones of the sheet's tile size, or smaller pictures, which are centred."""

    tiles: list[Image.Image]
    label: str = ""
    captions: Sequence[str] = ()


def contact_sheet(
    rows: Mapping[str, Sequence[Tensor | str]],
    columns: Sequence[str],
    *,
    title: str,
    captions: Mapping[str, Sequence[str]] | None = None,
    least: int = 1,
) -> Image.Image:
    """(3, S, S) pictures in [0, 1] under labelled rows and columns; words instead of a picture fill its place.

    `captions` stand below the pictures; pictures smaller than `least` pixels are enlarged by a whole factor.
    """
    size = next((tile.shape[-1] for row in rows.values() for tile in row if isinstance(tile, Tensor)), least)
    side = size * max(1, least // size)
    texts = captions or {}
    return draw_sheet(
        [Row([_tile(tile, side) for tile in row], label, texts.get(label, ())) for label, row in rows.items()],
        side,
        title=title,
        columns=columns,
    )


def draw_sheet(rows: Sequence[Row], side: int, *, title: str, columns: Sequence[str] = ()) -> Image.Image:
    """Rows of tiles of `side` pixels under a title and, if there are any, column labels."""
    font, small = ImageFont.load_default(TEXT_SIZE), ImageFont.load_default(CAPTION_SIZE)
    heads = [wrap_text(label, font, side) for label in columns]
    captions = [[wrap_text(text, small, side) for text in row.captions] for row in rows]
    depths = [SMALL * max((_lines(text) for text in texts), default=0) for texts in captions]
    head = LINE * (1 + max((_lines(text) for text in heads), default=0))
    labels = max(int(font.getlength(row.label)) for row in rows)
    margin = GAP + labels + (GAP if labels else 0)
    count = max(len(row.tiles) for row in rows)
    width = max(margin + count * (side + GAP), 2 * GAP + int(font.getlength(title)))
    sheet = Image.new("RGB", (width, GAP + head + sum(side + depth + GAP for depth in depths)), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, GAP), title, INK, font)
    centres = [margin + column * (side + GAP) + side / 2 for column in range(count)]
    for centre, label in zip(centres, heads, strict=False):
        draw.text((centre, GAP + LINE), label, INK, font, anchor="ma", align="center")
    top = GAP + head
    for row, texts, depth in zip(rows, captions, depths, strict=True):
        draw.text((GAP, top + side / 2), row.label, INK, font, anchor="lm")
        for centre, tile in zip(centres, row.tiles, strict=False):
            sheet.paste(tile, (int(centre - tile.width / 2), top + (side - tile.height) // 2))
        for centre, text in zip(centres, texts, strict=False):
            draw.text((centre, top + side + 2), text, INK, small, anchor="ma", align="center")
        top += side + depth + GAP
    return sheet


def text_tile(text: str, side: int) -> Image.Image:
    """A grey tile with words on it, as many lines as fit."""
    font = ImageFont.load_default(CAPTION_SIZE)
    tile = Image.new("RGB", (side, side), BLANK)
    lines = wrap_text(text, font, side - 2 * GAP).split("\n")
    room = (side - 2 * GAP) // SMALL
    words = "\n".join(lines if len(lines) <= room else [*lines[: room - 1], "…"])
    ImageDraw.Draw(tile).multiline_text((GAP, GAP), words, INK, font)
    return tile


def wrap_text(text: str, font: Any, width: int) -> str:
    """Line breaks so that no line is wider, as far as words allow; the breaks of the text stay."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        words = paragraph.split()
        lines.append(words[0] if words else "")
        for word in words[1:]:
            longer = f"{lines[-1]} {word}"
            if font.getlength(longer) <= width:
                lines[-1] = longer
            else:
                lines.append(word)
    return "\n".join(lines)


def fit_text(text: str, font: Any, width: int) -> str:
    """As much of a text as fits into a width in pixels."""
    start = text[: width // 3]  # few letters are narrower than three pixels
    while start and font.getlength(start + "…" * (start != text)) > width:
        start = start[:-1]
    return start + "…" * (start != text)


def _tile(tile: Tensor | str, side: int) -> Image.Image:
    if isinstance(tile, str):
        return text_tile(tile, side)
    return to_image(tile).resize((side, side), Image.Resampling.NEAREST)


def _lines(text: str) -> int:
    return text.count("\n") + 1 if text else 0
