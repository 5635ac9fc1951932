"""Sets of labelled pictures: the embedded one, pictures in memory, and folders of classes."""

import json
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from mjp.common.errors import InputError
from mjp.pictures.decode import EXTENSIONS, is_picture, open_rgb


class Pictures(Protocol):
    classes: list[str]
    labels: list[int]

    def __len__(self) -> int: ...
    def load(self, number: int) -> Image.Image: ...
    def name(self, number: int) -> str: ...


@dataclass
class InMemory:
    """Small pictures held as one (N, H, W, 3) array of bytes."""

    pixels: "np.ndarray[Any, np.dtype[np.uint8]]"
    labels: list[int]
    classes: list[str]

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, number: int) -> Image.Image:
        return Image.fromarray(self.pixels[number])

    def name(self, number: int) -> str:
        return f"picture {number}"


@dataclass
class Folder:
    """CLASS/* under a folder, classes in alphabetical order."""

    root: Path
    classes: list[str] = field(init=False)
    labels: list[int] = field(init=False)
    paths: list[Path] = field(init=False)

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            raise InputError(f"there is no folder {self.root}: name one with a folder of pictures for each class")
        self.classes = sorted(p.name for p in self.root.iterdir() if p.is_dir())
        self.paths, self.labels = [], []
        for label, name in enumerate(self.classes):
            paths = pictures_below(self.root / name)
            if not paths:
                raise InputError(f"{self.root / name} holds no pictures ({', '.join(sorted(EXTENSIONS))})")
            self.paths += paths
            self.labels += [label] * len(paths)
        if len(self.classes) < 2:
            raise InputError(f"{self.root} has {len(self.classes)} class folders, at least 2 are needed")

    def __len__(self) -> int:
        return len(self.paths)

    def load(self, number: int) -> Image.Image:
        return open_rgb(self.paths[number])

    def name(self, number: int) -> str:
        return str(self.paths[number])


@dataclass
class Part:
    """Some of the pictures of a set, by their numbers in it."""

    pictures: Pictures
    numbers: list[int]
    classes: list[str] = field(init=False)
    labels: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.classes = self.pictures.classes
        self.labels = [self.pictures.labels[number] for number in self.numbers]

    def __len__(self) -> int:
        return len(self.numbers)

    def load(self, number: int) -> Image.Image:
        return self.pictures.load(self.numbers[number])

    def name(self, number: int) -> str:
        return self.pictures.name(self.numbers[number])


def limited(pictures: Pictures, limit: int | None) -> Pictures:
    """The set itself, or at most `limit` of its pictures, spread evenly over the classes."""
    if limit is None or limit >= len(pictures):
        return pictures
    return Part(pictures, spread_over_classes(pictures.labels, limit))


def spread_over_classes(labels: list[int], limit: int | None) -> list[int]:
    """The numbers of at most `limit` pictures: every class has its share of them, rounded up or down."""
    count = min(limit or len(labels), len(labels))
    by_class = sorted(range(len(labels)), key=lambda number: labels[number])
    return sorted(by_class[k * len(labels) // count] for k in range(count))


def pictures_below(folder: Path) -> list[Path]:
    """Every file at any depth that is named like a picture, in order."""
    return sorted(path for path in folder.rglob("*") if is_picture(path))


def embedded(split: str) -> InMemory:
    """The part of CIFAR-10 that comes with the package: 500 training, 100 validation pictures a class, lossless."""
    home = files("mjp.pictures.embedded")
    layout = json.loads(home.joinpath(f"{split}.json").read_text())
    with as_file(home.joinpath(f"{split}.webp")) as path:
        tiles = np.array(open_rgb(path)).reshape(-1, 32, layout["columns"], 32, 3)
    return InMemory(tiles.transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3), layout["labels"], layout["classes"])
