"""Hits on one picture: rank, score and file name under each, and with an explanation the patch that each word chose."""

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps
from PIL.PngImagePlugin import PngInfo

from mjp.aladin.index.intake import SHEET, printable
from mjp.aladin.search.explain import Word, draw_choices, fitting
from mjp.aladin.search.two_stage import Found
from mjp.pictures.decode import first_readable

INK, PAPER, QUIET, GAP, LINE, SIDE, COLUMNS = "#1d1f21", "#fdfcfa", "#5a5f65", 14, 20, 280, 5
MOST = 100  # pictures on a sheet: more would make a file that hardly a viewer opens


def thumbnail(paths: list[Path], side: int) -> Image.Image | None:
    """The picture at the first path that can be read, its longer side `side`; None if there is none any more."""
    picture = first_readable(paths, at_least=side)
    return None if picture is None else ImageOps.contain(picture, (side, side), Image.Resampling.LANCZOS)


def contact_sheet(title: str, found: list[Found], words: dict[str, list[Word]], grid: tuple[int, int]) -> Image.Image:
    """The first MOST hits in reading order; `words` says what each word found in a picture, if that was asked for."""
    font, small = ImageFont.load_default(17), ImageFont.load_default(13)
    found = found[:MOST]
    columns = min(COLUMNS, len(found))
    rows, height = -(-len(found) // columns), SIDE + 2 * LINE + GAP
    title = fitting(printable(" ".join(title.split())), font, COLUMNS * (SIDE + GAP) - GAP)
    width = max(GAP + columns * (SIDE + GAP), 2 * GAP + int(font.getlength(title)))
    sheet = Image.new("RGB", (width, 2 * GAP + LINE + rows * height), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, GAP), title, INK, font)
    for number, each in enumerate(found):
        y, x = divmod(number, columns)
        left, top = GAP + x * (SIDE + GAP), 2 * GAP + LINE + y * height
        picture = thumbnail(each.paths, SIDE)
        if picture is None:
            draw.rectangle((left, top, left + SIDE, top + SIDE), outline=QUIET)
            draw.text((left + SIDE / 2, top + SIDE / 2), "no longer readable", QUIET, small, anchor="mm")
        else:
            if each.id in words:
                picture = draw_choices(picture, words[each.id], grid)
            sheet.paste(picture, (left + (SIDE - picture.width) // 2, top + (SIDE - picture.height) // 2))
        draw.text((left, top + SIDE + 3), f"{number + 1}   {scores(each)}", INK, small)
        draw.text((left, top + SIDE + 3 + LINE), fitting(name(each), small, SIDE), QUIET, small)
    return sheet


def save_sheet(sheet: Image.Image, path: Path) -> None:
    """With a mark that it is ours: indexing the folder it lies in passes it over."""
    mark = PngInfo()
    mark.add_text("Software", SHEET)
    sheet.save(path, "PNG", pnginfo=mark)


def name(found: Found) -> str:
    return printable(found.paths[0].name) if found.paths else found.id


def scores(found: Found) -> str:
    hit = found.hit
    return f"cosine {hit.cosine:.3f}" + ("" if hit.alignment is None else f", alignment {hit.alignment:.2f}")
