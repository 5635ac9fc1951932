"""Folders of pictures and masks, in CamVid's or ADE20K's layout.

    CamVid     ROOT/{train,val,test}/{images,masks}/NAME.png             labels 0 … C − 1, void C
    ADE20K     ROOT/{images,annotations}/{training,validation}/NAME.png  labels 1 … C, void 0

CamVid's 11 classes and ADE20K's 150 are assumed, unless ROOT/classes.txt names others, one per line. ADE20K's own
objectInfo150.txt, if it is there, names its classes. The picture of NAME.png may have any ending.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mjp.common.errors import InputError
from mjp.common.progress import track
from mjp.common.read import read_text
from mjp.pictures.decode import is_picture, open_labels, open_rgb
from mjp.segmentation.metrics import IGNORE

CAMVID = (*("sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "bicyclist"),)
CHECKING_THREADS = 4


class Pair(NamedTuple):
    picture: Path
    mask: Path


@dataclass(frozen=True)
class Labels:
    """What the numbers in a mask file mean."""

    names: tuple[str, ...]
    first: int  # the label of class 0
    void: int

    def to_classes(self, path: Path, labels: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Classes from labels; void becomes IGNORE."""
        classes = labels - self.first
        inside = (classes >= 0) & (classes < len(self.names))
        if (wrong := labels[~inside & (labels != self.void)]).size:
            last = self.first + len(self.names) - 1
            raise InputError(
                f"{path} has the label {wrong[0]}: labels must be {self.first} to {last}, or {self.void} for void; "
                "other classes are named in classes.txt, one per line"
            )
        return np.where(inside, classes, IGNORE).astype(np.uint8)


@dataclass(frozen=True)
class Scenes:
    """The pictures and masks of one split."""

    pairs: tuple[Pair, ...]
    labels: Labels

    def __len__(self) -> int:
        return len(self.pairs)

    def load(self, number: int) -> tuple[Image.Image, NDArray[np.uint8]]:
        """A picture and the (H, W) classes of its pixels."""
        pair = self.pairs[number]
        picture = open_rgb(pair.picture)
        classes = self.labels.to_classes(pair.mask, open_labels(pair.mask))
        if classes.shape != (picture.height, picture.width):
            height, width = classes.shape
            raise InputError(
                f"{pair.mask} has {width} x {height} pixels and its picture {picture.width} x {picture.height}: make "
                "them the same size"
            )
        return picture, classes


@dataclass(frozen=True)
class SceneFolder:
    """A data set: its layout and its splits."""

    layout: str
    labels: Labels
    splits: dict[str, Scenes]  # train, val, and test if there is one

    def check(self) -> None:
        """Decode every file once: what is wrong is better known now than after hours of training."""
        everything = [(scenes, number) for scenes in self.splits.values() for number in range(len(scenes))]
        with ThreadPoolExecutor(CHECKING_THREADS) as pool:
            results = pool.map(lambda item: _problem(*item), everything)
            outcomes = list(track(results, "checking pictures", total=len(everything)))
            problems = [outcome for outcome in outcomes if isinstance(outcome, str)]
        if problems:
            more = f" ({len(problems) - 1} other pictures have problems as well)" if len(problems) > 1 else ""
            raise InputError(problems[0] + more)
        labelled = {id(scenes) for (scenes, _), outcome in zip(everything, outcomes, strict=True) if outcome}
        for split, scenes in self.splits.items():
            if id(scenes) not in labelled:
                raise InputError(f"every pixel of every mask in {split} is void: nothing could be learned or measured")


def find_scenes(root: Path) -> SceneFolder:
    """The data set in a folder, whichever of the two layouts it has."""
    root = root.expanduser()
    if not root.is_dir():
        raise InputError(f"there is no folder {root}: name one in CamVid's or ADE20K's layout")
    if (root / "train" / "images").is_dir():
        places = {split: (root / split / "images", root / split / "masks") for split in ("train", "val", "test")}
        names = _class_names(root) or CAMVID
        return _read("camvid", Labels(names, first=0, void=len(names)), places)
    if (root / "images" / "training").is_dir():
        parts = {"train": "training", "val": "validation"}
        places = {split: (root / "images" / part, root / "annotations" / part) for split, part in parts.items()}
        names = _class_names(root) or _ade20k_names(root)
        return _read("ade20k", Labels(names, first=1, void=0), places)
    raise InputError(
        f"{root} has neither train/images (CamVid's layout) nor images/training (ADE20K's): see docs/segmentation.md"
    )


def _read(layout: str, labels: Labels, places: dict[str, tuple[Path, Path]]) -> SceneFolder:
    if len(labels.names) > IGNORE:
        raise InputError(f"{len(labels.names)} classes are too many: at most {IGNORE} are supported")
    if not places.get("test", (Path(),))[0].is_dir():
        places.pop("test", None)
    splits = {split: Scenes(tuple(_pairs(*folders)), labels) for split, folders in places.items()}
    return SceneFolder(layout, labels, splits)


def _pairs(pictures: Path, masks: Path) -> Iterator[Pair]:
    for folder in (pictures, masks):
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder}: every split needs pictures and masks")
    paths = sorted(path for path in pictures.iterdir() if is_picture(path))
    if not paths:
        raise InputError(f"{pictures} holds no pictures")
    for path in paths:
        mask = masks / f"{path.stem}.png"
        if not mask.is_file():
            raise InputError(f"{path} has no mask: {mask} is missing")
        yield Pair(path, mask)


def _class_names(root: Path) -> tuple[str, ...]:
    path = root / "classes.txt"
    if not path.is_file():
        return ()
    names = tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
    if len(names) < 2:
        raise InputError(f"{path} names {len(names)} classes: at least 2 are needed, one per line")
    return names


def _ade20k_names(root: Path) -> tuple[str, ...]:
    """From the table that ADE20K comes with: tabs between columns, the names of a class in the last one."""
    path = root / "objectInfo150.txt"
    if not path.is_file():
        return tuple(f"class {label}" for label in range(1, 151))
    rows = [line.split("\t") for line in read_text(path).splitlines()[1:] if line.strip()]
    return tuple(row[-1].split(",")[0].strip() for row in rows)


def _problem(scenes: Scenes, number: int) -> str | bool:
    """What is wrong with a picture and its mask, or whether the mask has a pixel that is not void."""
    try:
        _, classes = scenes.load(number)
    except InputError as error:
        return str(error)
    return bool((classes != IGNORE).any())
