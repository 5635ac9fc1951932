"""Filters: a folder is not one of a similar name, a day includes its last second, dates come from the camera."""

import os
from datetime import datetime
from pathlib import Path

import pytest
from PIL import ExifTags, Image

from aladin.gallery import draw_picture, take_in
from mjp.aladin.index.filters import Filter, make_filter, read_day
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.common.errors import InputError
from mjp.pictures.dates import LATEST, date_taken


def names(index: Index, where: Filter) -> set[str]:
    rows = index.passing(where).nonzero()[:, 0].tolist()
    return {entry.paths[0].name for entry in index.entries(rows)}


def nanoseconds(*parts: int) -> int:
    return int(datetime(*parts).timestamp()) * 10**9  # type: ignore[arg-type]


@pytest.fixture
def index(model: Aladin, tmp_path: Path) -> Index:
    for number, name in enumerate(("a/1.png", "a/b/2.png", "ab/3.png", "a/4.jpg")):
        draw_picture(tmp_path / "pictures" / name, number)
    taken = Image.Exif()
    taken.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = "2020:02:29 23:59:59"
    path = tmp_path / "pictures/a/4.jpg"
    with Image.open(path) as picture:
        picture.load()
        picture.save(path, exif=taken)
    for number, path in enumerate(sorted((tmp_path / "pictures").rglob("*.png")), 1):
        os.utime(path, ns=(0, nanoseconds(2021, number, 1)))
    return take_in(tmp_path / "pictures", tmp_path / "index", model)[0]


def test_a_folder_is_itself_and_what_is_below_it(index: Index, tmp_path: Path) -> None:
    home = tmp_path / "pictures"
    assert names(index, make_filter(home / "a")) == {"1.png", "2.png", "4.jpg"}
    assert names(index, make_filter(f"{home}/a/")) == {"1.png", "2.png", "4.jpg"}
    assert names(index, make_filter(home / "a" / "b")) == {"2.png"}
    assert names(index, make_filter(home / "nowhere")) == set()
    assert names(index, make_filter(home)) == {"1.png", "2.png", "3.png", "4.jpg"}


def test_the_camera_knows_better_than_the_file_system(index: Index) -> None:
    assert names(index, make_filter(since="2020-02-29", until="2020-02-29")) == {"4.jpg"}
    assert names(index, make_filter(until="2020")) == {"4.jpg"}
    assert names(index, make_filter(since="2020-03", until="2021-02")) == {"1.png", "2.png"}
    assert names(index, make_filter(since="2021-02-02")) == {"3.png"}


def test_what_was_added_today_stays_added_today(index: Index, model: Aladin, tmp_path: Path) -> None:
    before = {file.path: file.added for file in index.catalogue.files()}
    assert len(names(index, make_filter(added_since="1d"))) == 4
    assert names(index, make_filter(added_since="2100")) == set()
    (tmp_path / "pictures/a/1.png").touch()  # read again, the same content
    draw_picture(tmp_path / "pictures/ab/3.png", 99)  # another picture
    again, report = take_in(tmp_path / "pictures", tmp_path / "index", model)
    assert (report.added, report.linked) == (1, 1)
    after = {file.path.name: file.added for file in again.catalogue.files()}
    assert {path.name for path, added in before.items() if after[path.name] != added} == {"3.png"}


def test_dates_beyond_what_a_catalogue_holds(index: Index, model: Aladin, tmp_path: Path) -> None:
    far = tmp_path / "pictures/a/1.png"
    os.utime(far, ns=(0, nanoseconds(2400, 1, 1)))
    if far.stat().st_mtime_ns <= LATEST:
        pytest.skip("this file system holds no such time either")
    for linked in (1, 0):  # the second time it is unchanged
        again, report = take_in(tmp_path / "pictures", tmp_path / "index", model)
        assert (report.linked, report.unchanged) == (linked, 4 - linked)
    assert names(again, make_filter(since="2200")) == names(again, make_filter(since="3000")) == {"1.png"}
    assert names(again, make_filter(until="9999-12-31")) == names(again, make_filter(until="9999"))
    assert len(names(again, make_filter(until="9999"))) == 3


def test_days_months_and_years() -> None:
    assert read_day("2024", "--since") == (nanoseconds(2024, 1, 1), nanoseconds(2025, 1, 1))
    assert read_day("2024-2", "--since") == (nanoseconds(2024, 2, 1), nanoseconds(2024, 3, 1))
    assert read_day("2024-12", "--since") == (nanoseconds(2024, 12, 1), nanoseconds(2025, 1, 1))
    assert read_day("2024-12-31", "--since") == (nanoseconds(2024, 12, 31), nanoseconds(2025, 1, 1))
    day = datetime.now().timestamp() - read_day("1d", "--since")[0] / 1e9
    assert day == pytest.approx(86400, abs=3700)
    for text in ("", "24", "2024-13", "2024-02-30", "0000", "yesterday", "9999999d", "2024-1-1-1", "２０２４x"):
        with pytest.raises(InputError, match="is not a date"):
            read_day(text, "--since")


@pytest.mark.parametrize(
    "text",
    [*("0000:00:00 00:00:00", "    :  :     :  :  ", "", "2020-02-29", "2020:02:30 0:00:00"), "9999:12:31 23:59:59"],
)
def test_a_camera_without_a_clock_says_nothing(text: str) -> None:
    picture = Image.new("RGB", (4, 4))
    picture.getexif()[ExifTags.Base.DateTime] = text
    assert date_taken(picture) is None
