"""Tokens on disk: computed once, streamed from there in training, resumable after a kill.

    FOLDER/
      key.json      what the tokens were computed from; another key is another folder
      tokens.f16    rows of different lengths one after the other, each (1 + N, D): class token first
      lengths.i32   1 + N of every row; 0 stands for a picture that could not be read
                    (tried again when a file of the data has changed: then the key is another; or in another cache)

Both files only grow. Lengths are written after their tokens, so whatever a kill leaves behind the last complete row is
cut off, and the work goes on there. Runs may share a folder: one fills it, under a lock, the others wait and find it
filled. Reading goes through a memory map: a training run never holds the features.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

from mjp.aladin.data.captions import Captioned
from mjp.aladin.model.text import Words, padded
from mjp.aladin.model.tokens import Tokens
from mjp.aladin.model.vision import Vision
from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.pictures.decode import UnreadablePicture, open_rgb

Rows = list[Tensor]  # (1 + N, D) each


class TokenFile:
    """An append-only file of token rows."""

    def __init__(self, folder: Path, width: int) -> None:
        self.folder, self.width = folder, width
        self.tokens, self.lengths = folder / "tokens.f16", folder / "lengths.i32"
        for file in (self.tokens, self.lengths):
            file.touch()

    def __len__(self) -> int:
        return self.lengths.stat().st_size // 4

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Keep other processes from appending, or wait for one that does; it may have left nothing to be done."""
        with open(self.folder / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                tqdm.write(f"another process is filling {self.folder}: waiting until it is done")
                fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                self._cut()
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough: processes that read pictures have it open too

    def append(self, rows: Rows) -> None:
        """Add rows while `filling`; all of them are there afterwards, or, after a kill, a part of them."""
        flat = torch.cat([row.half().cpu() for row in rows]).numpy()
        _append(self.tokens, flat.tobytes())
        _append(self.lengths, np.array([len(row) for row in rows], np.int32).tobytes())
        self.__dict__.pop("_mapped", None)

    def read(self, numbers: Iterable[int]) -> tuple[Tensor, Tensor, Tensor]:
        """cls (B, D), tokens (B, L, D) padded to the longest, valid (B, L)."""
        offsets, tokens = self._mapped
        rows = [torch.from_numpy(tokens[offsets[n] : offsets[n + 1]].astype(np.float32)) for n in numbers]
        everything, valid = padded(rows)
        return everything[:, 0], everything[:, 1:], valid[:, 1:]

    def unreadable(self) -> list[int]:
        return np.flatnonzero(np.fromfile(self.lengths, np.int32) == 0).tolist()

    @cached_property
    def _mapped(self) -> tuple[Any, Any]:
        offsets = np.concatenate([[0], np.fromfile(self.lengths, np.int32).cumsum(dtype=np.int64)])
        # no further than lengths are known: another process may be appending more
        return offsets, np.memmap(self.tokens, np.float16, "r", shape=(int(offsets[-1]), self.width))

    def _cut(self) -> None:
        """Take off what a kill left incomplete."""
        ends = np.fromfile(self.lengths, np.int32).cumsum(dtype=np.int64)
        there = self.tokens.stat().st_size // (2 * self.width)
        complete = int((ends <= there).sum())
        os.truncate(self.lengths, 4 * complete)
        os.truncate(self.tokens, 2 * self.width * int(ends[complete - 1]) if complete else 0)


def token_file(cache: Path, key: dict[str, Any], width: int) -> TokenFile:
    """The file for what `key` describes, begun or continued in a folder of its own under `cache`."""
    text = json.dumps({**key, "width": width}, sort_keys=True)
    folder = cache / f"{key['kind']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "key.json", lambda path: path.write_text(text + "\n"))
    return TokenFile(folder, width)


def fill(file: TokenFile, count: int, compute: Callable[[int, int], Rows], batch: int, what: str) -> None:
    """Append what is missing of `count` rows, `compute(start, stop)` by `compute`."""
    with file.filling(), tqdm(total=count, initial=len(file), desc=what, unit="row", disable=None) as bar:
        for start in range(len(file), count, batch):
            stop = min(start + batch, count)
            file.append(compute(start, stop))
            bar.update(stop - start)


class PictureFeatures:
    """Backbone tokens of pictures in one or several views. `items` are the pictures that could be read."""

    def __init__(
        self, cache: Path, data: list[Captioned], vision: Vision, *, views: int, workers: int, max_unreadable: int
    ) -> None:
        self.data, self.vision = data, vision
        self.rows = [(number, view) for view in range(views) for number in range(len(data))]
        # view by view, so that more views only lengthen the file that fewer have made
        self.key = {"kind": "pictures", **vision.facts(), "files": _files(data)}
        self.file = token_file(cache, self.key, vision.width)
        with self.file.filling():
            self._fill(workers)
        broken = {place % len(data) for place in self.file.unreadable() if place < len(self.rows)}
        _name_unreadable([data[number].path for number in sorted(broken)], max_unreadable)
        self.kept = [number for number in range(len(data)) if number not in broken]
        self.items = [data[number] for number in self.kept]
        if not self.items:
            raise InputError(f"none of the {len(data)} pictures can be read")

    def place(self, number: int, view: int = 0) -> int:
        """The row of the `number`-th readable picture."""
        return view * len(self.data) + self.kept[number]

    def read(self, places: list[int]) -> Tokens:
        cls, patches, valid = self.file.read(places)
        return Tokens(cls, patches, valid, torch.zeros_like(valid))

    def _fill(self, workers: int, batch: int = 32) -> None:
        start = len(self.file)
        todo = _Pictures(self, range(start, len(self.rows)))
        loader = DataLoader(todo, batch, num_workers=workers, collate_fn=list)
        with tqdm(total=len(self.rows), initial=start, desc="picture features", unit="picture", disable=None) as bar:
            for images in loader:
                self.file.append(self._tokens(images))
                bar.update(len(images))

    def _tokens(self, images: list[Tensor | None]) -> Rows:
        readable = [image for image in images if image is not None]
        nothing = torch.zeros(0, self.file.width)
        if not readable:
            return [nothing] * len(images)
        tokens = self.vision.tokens(torch.stack(readable))
        rows = iter(torch.cat([tokens.cls.unsqueeze(1), tokens.patches], 1))
        return [nothing if image is None else next(rows) for image in images]


class _Pictures(torch.utils.data.Dataset[Tensor | None]):
    """Prepared pictures by place; None if one cannot be read."""

    def __init__(self, features: PictureFeatures, places: range) -> None:
        self.features, self.places = features, places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, k: int) -> Tensor | None:
        number, view = self.features.rows[self.places[k]]
        try:
            return self.features.vision.prepare(open_rgb(self.features.data[number].path), view, seed=number)
        except UnreadablePicture:
            return None


def text_features(
    cache: Path, texts: list[str], facts: dict[str, Any], source: Callable[[list[str]], Words], width: int
) -> TokenFile:
    """Tokens of texts by a frozen source, one row per text."""
    file = token_file(cache, {"kind": "texts", **facts, "texts": digest(texts)}, width)
    fill(file, len(texts), lambda start, stop: word_rows(source(texts[start:stop])), 128, "text features")
    return file


def digest(texts: list[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def word_rows(words: Words) -> Rows:
    """Class token and real words of every text."""
    return [torch.cat([c.unsqueeze(0), w[v]]) for c, w, v in zip(*words, strict=True)]


def _name_unreadable(paths: list[Path], limit: int) -> None:
    if len(paths) > limit:
        raise InputError(
            f"{len(paths)} unreadable pictures, --max-unreadable allows {limit}: {', '.join(map(str, paths[:5]))}. "
            "Repair or remove them, or raise the limit"
        )
    for path in paths:
        tqdm.write(f"unreadable: {path}")


def _files(data: list[Captioned]) -> str:
    """Changes when a picture does."""
    facts = [(item.path.name, item.path.stat()) for item in data]
    return digest([f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in facts])


def _append(path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
