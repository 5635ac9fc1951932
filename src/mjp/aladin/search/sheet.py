"""Matches on one picture: rank, score and file name below each, and with an explanation the patch of each word."""

from pathlib import Path

from PIL import Image, ImageFont, ImageOps
from PIL.PngImagePlugin import PngInfo

from mjp.aladin.index.reading import SHEET
from mjp.aladin.search.draw import draw_frames
from mjp.aladin.search.explain import Word
from mjp.aladin.search.two_stage import Match
from mjp.common.files import write_atomically
from mjp.common.terminal import printable
from mjp.pictures.decode import first_readable
from mjp.pictures.sheet import CAPTION_SIZE, GAP, TEXT_SIZE, Row, draw_sheet, fit_text, text_tile

SIDE, COLUMNS = 280, 5
MAX_PICTURES = 100  # on a sheet: few viewers open a larger file


def contact_sheet(
    title: str,
    matches: list[Match],
    words: dict[str, list[Word]],
    grid: tuple[int, int],
    *,
    max_pixels: int | None = None,
) -> Image.Image:
    """The first MAX_PICTURES matches in reading order; `words` are their explanations by id, if there are any."""
    matches = matches[:MAX_PICTURES]
    tiles = [_tile(match, words.get(match.id), grid, max_pixels) for match in matches]
    captions = [_caption(place, match) for place, match in enumerate(matches, 1)]
    rows = [
        Row(tiles[first : first + COLUMNS], captions=captions[first : first + COLUMNS])
        for first in range(0, len(matches), COLUMNS)
    ]
    font, width = ImageFont.load_default(TEXT_SIZE), COLUMNS * (SIDE + GAP) - GAP
    return draw_sheet(rows, SIDE, title=fit_text(printable(" ".join(title.split())), font, width))


def _tile(match: Match, words: list[Word] | None, grid: tuple[int, int], max_pixels: int | None) -> Image.Image:
    picture = first_readable(match.paths, max_pixels=max_pixels, at_least=SIDE)
    if picture is None:
        return text_tile("no longer readable", SIDE)
    tile = ImageOps.contain(picture, (SIDE, SIDE), Image.Resampling.LANCZOS)
    return tile if words is None else draw_frames(tile, words, grid)


def _caption(place: int, match: Match) -> str:
    scores = f"cosine {match.cosine:.3f}" + ("" if match.alignment is None else f", alignment {match.alignment:.2f}")
    name = fit_text(file_name(match), ImageFont.load_default(CAPTION_SIZE), SIDE)
    return f"{place} · {scores}\n{name}"


def write_sheet(sheet: Image.Image, path: Path) -> None:
    """With a tag, so that indexing the folder that contains it skips it."""
    tag = PngInfo()
    tag.add_text("Software", SHEET)
    write_atomically(path, lambda temporary: sheet.save(temporary, "PNG", pnginfo=tag))


def file_name(match: Match) -> str:
    return printable(match.paths[0].name) if match.paths else match.id
