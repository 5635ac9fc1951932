"""Features of frozen encoders on disk: backbone tokens of pictures, and tokens of texts; pictures for a trained one."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from mjp.aladin.data.captions import Captioned
from mjp.aladin.data.token_file import Rows, TokenFile, fill, token_file
from mjp.aladin.model.text import FrozenTextEncoder, Words
from mjp.aladin.model.tokens import Tokens
from mjp.aladin.model.vision import Vision
from mjp.common.errors import InputError
from mjp.common.progress import Progress, say
from mjp.pictures.decode import UnreadablePicture, open_rgb


class CheckedPictures(ABC):
    """Pictures that were all read once, with a row on disk for each; `items` are the readable ones."""

    def __init__(
        self, file: TokenFile, data: list[Captioned], vision: Vision, *, views: int, workers: int, max_unreadable: int
    ) -> None:
        self.data = data
        self.vision = vision
        self.workers = workers
        self.file = file
        # view by view, so that more views extend the file of fewer views
        self.rows = [(number, view) for view in range(views) for number in range(len(data))]
        with self.file.filling():
            self._fill(workers)
        broken = {place % len(data) for place in self.file.unreadable() if place < len(self.rows)}
        _name_unreadable([data[number].path for number in sorted(broken)], max_unreadable)
        self.readable = [number for number in range(len(data)) if number not in broken]
        self.items = [data[number] for number in self.readable]
        if not self.items:
            raise InputError(f"none of the {len(data)} pictures can be read")

    @abstractmethod
    def rows_of(self, images: list[Tensor]) -> Rows:
        """What is kept on disk of readable pictures."""

    def _fill(self, workers: int, batch: int = 32) -> None:
        start = len(self.file)
        missing = _Pictures(self.data, self.vision, self.rows[start:])
        loader = DataLoader(missing, batch, num_workers=workers, collate_fn=list)
        with Progress(len(self.rows), "reading pictures", initial=start, unit="picture") as progress:
            for images in loader:
                self.file.append(self._rows(images))
                progress.advance(len(images))

    def _rows(self, images: list[Tensor | None]) -> Rows:
        readable = [image for image in images if image is not None]
        rows = iter(self.rows_of(readable) if readable else [])
        return [torch.zeros(0, self.file.width) if image is None else next(rows) for image in images]


class PictureFeatures(CheckedPictures):
    """Tokens of a frozen backbone in one or several views."""

    def __init__(self, cache: Path, data: list[Captioned], vision: Vision, **settings: Any) -> None:
        self.key = {"kind": "pictures", **vision.identity(), "files": _files(data)}
        super().__init__(token_file(cache, self.key, vision.width), data, vision, **settings)

    def place(self, number: int, view: int = 0) -> int:
        """The row of the `number`-th readable picture."""
        return view * len(self.data) + self.readable[number]

    def read(self, places: list[int]) -> Tokens:
        cls, patches, valid = self.file.read(places)
        return Tokens(cls, patches, valid, torch.zeros_like(valid))

    def rows_of(self, images: list[Tensor]) -> Rows:
        tokens = self.vision.tokens(torch.stack(images))
        return list(torch.cat([tokens.cls.unsqueeze(1), tokens.patches], 1))


class LivePictures(CheckedPictures):
    """The pictures themselves, for a backbone that is trained. On disk is only which of them can be read."""

    def __init__(self, cache: Path, data: list[Captioned], vision: Vision, **settings: Any) -> None:
        file = token_file(cache, {"kind": "readable", "files": _files(data)}, 1)
        super().__init__(file, data, vision, **settings | {"views": 1})

    def rows_of(self, images: list[Tensor]) -> Rows:
        return [torch.zeros(1, 1)] * len(images)

    def batches(self, batches: list[list[tuple[int, int]]]) -> Iterator[Tensor]:
        """(B, 3, H, W) for every batch of (number of a readable picture, view)."""
        rows = [(self.readable[number], view) for batch in batches for number, view in batch]
        ends = list(accumulate((len(batch) for batch in batches), initial=0))
        places = [list(range(*pair)) for pair in pairwise(ends)]
        pictures = _Pictures(self.data, self.vision, rows, must_be_readable=True)
        # a generator of its own: the loader must not advance the global one
        yield from DataLoader(
            pictures,
            batch_sampler=places,
            num_workers=self.workers,
            generator=torch.Generator(),
            collate_fn=torch.stack,
        )


class _Pictures(torch.utils.data.Dataset[Tensor | None]):
    """Prepared pictures by (number, view); None if one cannot be read."""

    def __init__(
        self, data: list[Captioned], vision: Vision, rows: list[tuple[int, int]], *, must_be_readable: bool = False
    ) -> None:
        self.data = data
        self.prepare = vision.prepare
        self.rows = rows
        self.must_be_readable = must_be_readable

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, k: int) -> Tensor | None:
        number, view = self.rows[k]
        try:
            return self.prepare(open_rgb(self.data[number].path), view, seed=number)
        except UnreadablePicture:
            if self.must_be_readable:
                raise
            return None


def text_features(cache: Path, texts: list[str], encoder: FrozenTextEncoder) -> TokenFile:
    """Tokens of texts by a frozen encoder, one row per text."""
    key = {"kind": "texts", "source": encoder.weights, "texts": digest(texts)}
    file = token_file(cache, key, encoder.width)
    fill(file, len(texts), lambda start, stop: word_rows(encoder(texts[start:stop])), 128, "text features")
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
        say(f"unreadable: {path}")


def _files(data: list[Captioned]) -> str:
    """Changes when a picture does."""
    files = [(item.path.name, item.path.stat()) for item in data]
    return digest([f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in files])
