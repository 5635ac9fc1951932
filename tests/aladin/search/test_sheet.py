"""The contact sheet is as large as its pictures need, whatever the query."""

from pathlib import Path

import pytest

from aladin.gallery import draw_picture
from mjp.aladin.search.sheet import COLUMNS, SIDE, contact_sheet
from mjp.aladin.search.two_stage import Match
from mjp.pictures.sheet import GAP

WIDEST = GAP + COLUMNS * (SIDE + GAP)


@pytest.mark.parametrize("count", [1, 6])
def test_a_title_never_makes_the_sheet_wider_than_five_pictures(tmp_path: Path, count: int) -> None:
    draw_picture(tmp_path / "a.png", 0)
    found = [Match("a", [tmp_path / "a.png"], 0, 1, 0.5)] * count
    for title in ("a dog " * 20_000, "i" * 300, "W" * 300):
        assert contact_sheet(title, found, {}, (4, 4)).width <= WIDEST
    assert contact_sheet("a dog", found[:1], {}, (4, 4)).width == GAP + SIDE + GAP


def test_a_title_may_hold_line_breaks_and_control_characters(tmp_path: Path) -> None:
    draw_picture(tmp_path / "a.png", 0)
    found = [Match("a", [tmp_path / "a.png"], 0, 1, 0.5)]
    sheet, plain = (contact_sheet(title, found, {}, (4, 4)) for title in ("a\n\tdog \r\n", "a dog"))
    assert sheet.tobytes() == plain.tobytes()
    contact_sheet("a \x1b[31m\x00 dog", found, {}, (4, 4))
