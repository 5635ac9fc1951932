"""Features of frozen encoders on disk: backbone tokens of pictures, and tokens of texts."""

import hashlib
from pathlib import Path

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


class PictureFeatures:
    """Backbone tokens of pictures in one or several views; `items` are the readable pictures."""

    def __init__(
        self, cache: Path, data: list[Captioned], vision: Vision, *, views: int, workers: int, max_unreadable: int
    ) -> None:
        self.data = data
        self.vision = vision
        self.rows = [(number, view) for view in range(views) for number in range(len(data))]
        # view by view, so that more views extend the file of fewer views
        self.key = {"kind": "pictures", **vision.identity(), "files": _files(data)}
        self.file = token_file(cache, self.key, vision.width)
        with self.file.filling():
            self._fill(workers)
        broken = {place % len(data) for place in self.file.unreadable() if place < len(self.rows)}
        _name_unreadable([data[number].path for number in sorted(broken)], max_unreadable)
        self.readable = [number for number in range(len(data)) if number not in broken]
        self.items = [data[number] for number in self.readable]
        if not self.items:
            raise InputError(f"none of the {len(data)} pictures can be read")

    def place(self, number: int, view: int = 0) -> int:
        """The row of the `number`-th readable picture."""
        return view * len(self.data) + self.readable[number]

    def read(self, places: list[int]) -> Tokens:
        cls, patches, valid = self.file.read(places)
        return Tokens(cls, patches, valid, torch.zeros_like(valid))

    def _fill(self, workers: int, batch: int = 32) -> None:
        start = len(self.file)
        missing = _Pictures(self, range(start, len(self.rows)))
        loader = DataLoader(missing, batch, num_workers=workers, collate_fn=list)
        with Progress(len(self.rows), "picture features", initial=start, unit="picture") as progress:
            for images in loader:
                self.file.append(self._tokens(images))
                progress.advance(len(images))

    def _tokens(self, images: list[Tensor | None]) -> Rows:
        readable = [image for image in images if image is not None]
        empty = torch.zeros(0, self.file.width)
        if not readable:
            return [empty] * len(images)
        tokens = self.vision.tokens(torch.stack(readable))
        rows = iter(torch.cat([tokens.cls.unsqueeze(1), tokens.patches], 1))
        return [empty if image is None else next(rows) for image in images]


class _Pictures(torch.utils.data.Dataset[Tensor | None]):
    """Prepared pictures by place; None if one cannot be read."""

    def __init__(self, features: PictureFeatures, places: range) -> None:
        self.features = features
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, k: int) -> Tensor | None:
        number, view = self.features.rows[self.places[k]]
        try:
            return self.features.vision.prepare(open_rgb(self.features.data[number].path), view, seed=number)
        except UnreadablePicture:
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
