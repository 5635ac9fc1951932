"""Contact sheets."""

import numpy as np
import torch

from mjp.pictures.sheet import contact_sheet


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
