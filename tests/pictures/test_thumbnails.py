"""Thumbnails are decoded once, a few at a time, and follow their files."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mjp.pictures import thumbnails
from mjp.pictures.decode import decode_rgb
from mjp.pictures.thumbnail_files import ThumbnailFiles
from mjp.pictures.thumbnails import Thumbnails


class Counter:
    """Counts decodes, and how many ran at the same time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.total = self.running = self.most = 0
        self.decode = thumbnails.open_rgb

    def __call__(self, path: Path, **options: Any) -> Image.Image:
        with self.lock:
            self.total += 1
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(0.02)
        try:
            return self.decode(path, **options)
        finally:
            with self.lock:
                self.running -= 1


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    counting = Counter()
    monkeypatch.setattr(thumbnails, "open_rgb", counting)
    return counting


def draw(path: Path, colour: str = "red", size: tuple[int, int] = (80, 40)) -> Path:
    Image.new("RGB", size, colour).save(path)
    return path


def opened(content: bytes | None) -> Image.Image:
    assert content is not None
    return decode_rgb(content)


def test_many_requests_decode_each_file_once_and_few_at_a_time(tmp_path: Path, counter: Counter) -> None:
    paths = [draw(tmp_path / f"{n}.png") for n in range(6)]
    cache = Thumbnails(decoders=2)
    with ThreadPoolExecutor(12) as pool:
        pictures = list(pool.map(lambda path: cache.jpeg([path], 32), paths * 8))
    assert all(opened(picture).size == (32, 16) for picture in pictures)
    assert counter.total == 6
    assert counter.most == 2


def test_a_changed_file_is_read_again_and_old_entries_go(tmp_path: Path, counter: Counter) -> None:
    path = draw(tmp_path / "a.png")
    cache = Thumbnails()
    size = len(cache.jpeg([path], 32) or b"")
    cache = Thumbnails(memory=2 * size + size // 2)
    cache.jpeg([path], 32)
    draw(path, "blue")
    os.utime(path, ns=(1, 1))
    red, green, blue = opened(cache.jpeg([path], 32)).getpixel((0, 0))  # type: ignore[misc]
    assert blue > 250
    assert red + green < 9
    cache.jpeg([path], 16)
    cache.jpeg([path], 8)
    assert (counter.total, len(cache.cache)) == (5, 2)
    assert cache.bytes == sum(map(len, cache.cache.values()))


def test_the_first_readable_path_counts_and_the_limit_holds(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    small, large = draw(tmp_path / "small.png"), draw(tmp_path / "large.png", size=(200, 100))
    cache = Thumbnails(max_pixels=4000)
    assert cache.jpeg([tmp_path / "gone.png", tmp_path / "pipe.png", small], 32) is not None
    assert cache.jpeg([large], 32) is None


def test_files_outlive_the_process_and_stay_within_their_limit(tmp_path: Path, counter: Counter) -> None:
    paths = [draw(tmp_path / f"{n}.png") for n in range(10)]
    folder = tmp_path / "cache"
    size = len(Thumbnails().jpeg([paths[0]], 32) or b"")
    for _ in range(2):
        first = Thumbnails(ThumbnailFiles(folder, 100 * size))
        assert all(first.jpeg([path], 32) for path in paths)
    assert counter.total == 11
    assert folder.stat().st_mode & 0o077 == 0  # nobody else may look
    bounded = ThumbnailFiles(folder, 6 * size)
    bounded.write("0" * 32, b"x" * size)
    files = list(folder.iterdir())
    assert sum(file.stat().st_size for file in files) <= 6 * size
    assert folder / f"{'0' * 32}.jpg" in files  # the newest stays


def test_a_folder_that_cannot_be_written_only_forgets(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    files = ThumbnailFiles(tmp_path / "file" / "cache", 1000)
    assert Thumbnails(files).jpeg([draw(tmp_path / "a.png")], 32)


def test_a_thumbnail_does_not_say_where_the_picture_was_taken(tmp_path: Path) -> None:
    marks = Image.Exif()
    marks[0x010E] = "at home"
    Image.new("RGB", (80, 40)).save(tmp_path / "a.jpg", exif=marks)
    assert b"at home" in (tmp_path / "a.jpg").read_bytes()
    assert b"at home" not in (Thumbnails().jpeg([tmp_path / "a.jpg"], 32) or b"at home")
