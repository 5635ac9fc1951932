"""Contact sheets."""

import numpy as np
import torch
from PIL import Image, ImageFont

from mjp.pictures.sheet import GAP, LINE, Row, contact_sheet, draw_sheet, fit_text, text_tile


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


def test_rows_without_labels_take_no_margin_and_small_pictures_are_centred() -> None:
    row = Row([Image.new("RGB", (40, 20), "red"), text_tile("gone", 40)], captions=["first\n" + "long" * 30, ""])
    sheet = draw_sheet([row, row], 40, title="t")
    assert sheet.width == GAP + 2 * (40 + GAP)
    red = (np.asarray(sheet) == (255, 0, 0)).all(-1)
    assert red.sum() == 2 * 40 * 20
    first = np.flatnonzero(red.any(1))[0]
    assert first == GAP + LINE + 10
    assert red[first].nonzero()[0][0] == GAP


def test_text_is_cut_to_its_room() -> None:
    font = ImageFont.load_default(13)
    for text in ("short", "w" * 1000, ""):
        assert font.getlength(fit_text(text, font, 60)) <= 60
    assert fit_text("short", font, 60) == "short"
    assert fit_text("w" * 1000, font, 60).endswith("…")
