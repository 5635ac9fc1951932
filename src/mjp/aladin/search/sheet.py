"""Matches on one picture: rank, score and file name below each, and with an explanation the patch of each word."""

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps
from PIL.PngImagePlugin import PngInfo

from mjp.aladin.index.reading import SHEET
from mjp.aladin.search.draw import draw_frames, fitting
from mjp.aladin.search.explain import Word
from mjp.aladin.search.two_stage import Match
from mjp.common.files import write_atomically
from mjp.common.terminal import printable
from mjp.pictures.decode import first_readable

INK, PAPER, QUIET = "#1d1f21", "#fdfcfa", "#5a5f65"
GAP, LINE, SIDE, COLUMNS = 14, 20, 280, 5
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
    font = ImageFont.load_default(17)
    matches = matches[:MAX_PICTURES]
    columns = min(COLUMNS, len(matches))
    rows, height = -(-len(matches) // columns), SIDE + 2 * LINE + GAP
    title = fitting(printable(" ".join(title.split())), font, COLUMNS * (SIDE + GAP) - GAP)
    width = max(GAP + columns * (SIDE + GAP), 2 * GAP + int(font.getlength(title)))
    sheet = Image.new("RGB", (width, 2 * GAP + LINE + rows * height), PAPER)
    ImageDraw.Draw(sheet).text((GAP, GAP), title, INK, font)
    for number, match in enumerate(matches):
        y, x = divmod(number, columns)
        picture = thumbnail(match.paths, SIDE, max_pixels)
        if picture is not None and match.id in words:
            picture = draw_frames(picture, words[match.id], grid)
        _draw_tile(sheet, GAP + x * (SIDE + GAP), 2 * GAP + LINE + y * height, picture, number + 1, match)
    return sheet


def thumbnail(paths: list[Path], side: int, max_pixels: int | None = None) -> Image.Image | None:
    """The picture at the first path that can be read, its longer side `side`; None if there is none any more."""
    picture = first_readable(paths, max_pixels=max_pixels, at_least=side)
    return None if picture is None else ImageOps.contain(picture, (side, side), Image.Resampling.LANCZOS)


def write_sheet(sheet: Image.Image, path: Path) -> None:
    """With a tag, so that indexing the folder that contains it skips it."""
    tag = PngInfo()
    tag.add_text("Software", SHEET)
    write_atomically(path, lambda temporary: sheet.save(temporary, "PNG", pnginfo=tag))


def file_name(match: Match) -> str:
    return printable(match.paths[0].name) if match.paths else match.id


def _draw_tile(sheet: Image.Image, left: int, top: int, picture: Image.Image | None, place: int, match: Match) -> None:
    draw, small = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    if picture is None:
        draw.rectangle((left, top, left + SIDE, top + SIDE), outline=QUIET)
        draw.text((left + SIDE / 2, top + SIDE / 2), "no longer readable", QUIET, small, anchor="mm")
    else:
        sheet.paste(picture, (left + (SIDE - picture.width) // 2, top + (SIDE - picture.height) // 2))
    scores = f"cosine {match.cosine:.3f}" + ("" if match.alignment is None else f", alignment {match.alignment:.2f}")
    draw.text((left, top + SIDE + 3), f"{place}   {scores}", INK, small)
    draw.text((left, top + SIDE + 3 + LINE), fitting(file_name(match), small, SIDE), QUIET, small)
