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


def test_many_requests_decode_each_file_once_and_few_at_a_time(tmp_path: Path, counter: Counter) -> None:
    paths = [draw(tmp_path / f"{n}.png") for n in range(6)]
    cache = Thumbnails(decoders=2)
    with ThreadPoolExecutor(12) as pool:
        pictures = list(pool.map(lambda path: cache.get([path], 32), paths * 8))
    assert all(picture is not None and picture.size == (32, 16) for picture in pictures)
    assert counter.total == 6
    assert counter.most == 2


def test_a_changed_file_is_read_again_and_old_entries_go(tmp_path: Path, counter: Counter) -> None:
    cache = Thumbnails(entries=2)
    path = draw(tmp_path / "a.png")
    cache.get([path], 32)
    draw(path, "blue")
    os.utime(path, ns=(1, 1))
    picture = cache.get([path], 32)
    assert picture is not None
    assert picture.getpixel((0, 0)) == (0, 0, 255)
    cache.get([path], 16)
    cache.get([path], 8)
    assert (counter.total, len(cache.cache)) == (4, 2)


def test_the_first_readable_path_counts_and_the_limit_holds(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    small, large = draw(tmp_path / "small.png"), draw(tmp_path / "large.png", size=(200, 100))
    cache = Thumbnails(max_pixels=4000)
    assert cache.get([tmp_path / "gone.png", tmp_path / "pipe.png", small], 32) is not None
    assert cache.get([large], 32) is None
