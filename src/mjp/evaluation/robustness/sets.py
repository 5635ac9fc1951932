"""Where corrupted pictures, natural adversarial examples and outliers come from: drawn on the fly, or from folders.

ImageNet-C     CORRUPTION/SEVERITY/CLASS/*, also with the folders noise, blur, weather, digital around the corruptions
ImageNet-A/-O  CLASS/*, 200 WordNet ids

A folder is checked for completeness before the first picture is looked at.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from PIL import Image
from timm.data import ImageNetInfo

from mjp.common.errors import InputError
from mjp.common.seeds import derive_seed
from mjp.evaluation.robustness.corrupt import corrupt
from mjp.evaluation.robustness.corruptions import CORRUPTIONS
from mjp.evaluation.robustness.imagenet_subsets import wordnet_ids
from mjp.models import Subject
from mjp.pictures.decode import EXTENSIONS, is_picture
from mjp.pictures.sets import Folder, Pictures, pictures_below
from mjp.pictures.tensors import to_image, to_tensor

Cell = tuple[str, int]  # corruption, severity


@dataclass
class Labelled(Folder):
    """CLASS/* under a folder for the classes that are named; a picture's label is the place of its class there."""

    names: list[str]

    def __post_init__(self) -> None:
        self.classes, self.paths, self.labels = self.names, [], []
        for label, name in enumerate(self.names):
            paths = pictures_below(self.root / name)
            self.paths += paths
            self.labels += [label] * len(paths)
        if not self.paths:
            raise InputError(f"{self.root} holds no pictures ({', '.join(sorted(EXTENSIONS))})")


@dataclass
class Corrupted:
    """Pictures cut as a model wants them, then corrupted; what is drawn depends on seed and number of the picture."""

    pictures: Pictures
    cut: Any  # PIL picture → PIL picture
    corruption: str
    severity: int
    seed: int
    classes: list[str] = field(init=False)
    labels: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.classes, self.labels = self.pictures.classes, self.pictures.labels

    def __len__(self) -> int:
        return len(self.pictures)

    def load(self, number: int) -> Image.Image:
        seed = derive_seed(self.seed, CORRUPTIONS.index(self.corruption), self.severity, number)
        generator = torch.Generator().manual_seed(seed)
        pixels = to_tensor(self.cut(self.pictures.load(number)))
        return to_image(corrupt(pixels, self.corruption, self.severity, generator))

    def name(self, number: int) -> str:
        return self.pictures.name(number)


class Grid(Protocol):
    """Corrupted pictures for some cells of corruption × severity."""

    source: str
    severities: tuple[int, ...]

    def cells(self) -> list[Cell]: ...
    def gaps(self, subject: Subject) -> list[str]:
        """The parts that are missing for this model; refused unless --allow-missing."""
        ...

    def pictures(self, subject: Subject, cell: Cell) -> Pictures: ...


@dataclass
class Generated:
    """Any pictures, corrupted while they are read, at the size that the model looks at."""

    clean: Pictures
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    seed: int
    source: str = "generated"

    def cells(self) -> list[Cell]:
        return [(name, severity) for name in self.corruptions for severity in self.severities]

    def gaps(self, subject: Subject) -> list[str]:
        subject.check_classes(self.clean.classes)
        return []

    def pictures(self, subject: Subject, cell: Cell) -> Corrupted:
        cut = subject.preprocessing.transform()
        cut.transforms = cut.transforms[:-2]  # all but: make a tensor, normalise
        return Corrupted(self.clean, cut, *cell, self.seed)


@dataclass
class CorruptedFolders:
    """ImageNet-C, or a folder that is laid out like it."""

    root: Path
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    allow_missing: bool
    source: str = field(init=False)
    folders: dict[Cell, Path] = field(init=False)
    missing: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.source, self.folders, self.missing = str(self.root), {}, []
        _check_root(self.root)
        for name in self.corruptions:
            inside = [folder for folder in (self.root / name, *self.root.glob(f"*/{name}")) if folder.is_dir()]
            if not inside:
                self.missing.append(name)
                continue
            for severity in self.severities:
                if (inside[0] / str(severity)).is_dir():
                    self.folders[name, severity] = inside[0] / str(severity)
                else:
                    self.missing.append(f"{name}/{severity}")
        if not self.folders:
            raise InputError(f"{self.root} holds no folder CORRUPTION/SEVERITY, such as {self.corruptions[0]}/1")
        self.classes_by_cell = {cell: class_folders(folder) for cell, folder in self.folders.items()}

    def cells(self) -> list[Cell]:
        return list(self.folders)

    def gaps(self, subject: Subject) -> list[str]:
        names = self._names(subject)
        missing = list(self.missing)
        for (corruption, severity), classes in self.classes_by_cell.items():
            missing += [f"{corruption}/{severity}/{name}" for name in names if name not in classes]
        _refuse(self.root, missing, self.allow_missing)
        return missing

    def pictures(self, subject: Subject, cell: Cell) -> Pictures:
        return Labelled(self.folders[cell], self._names(subject))

    def _names(self, subject: Subject) -> list[str]:
        together = set[str]().union(*self.classes_by_cell.values())
        names = output_names(subject, together)
        if unknown := sorted(together - set(names)):
            raise InputError(f"{self.root} has pictures of {unknown[0]}, a class that {subject.name} does not know")
        subject.check_classes(names)
        return names


@dataclass
class ImageNetSubset:
    """Pictures of some ImageNet classes, and which outputs of a model they are about."""

    root: Path
    outputs: tuple[int, ...]  # of a model with the 1,000 classes in their usual order
    allow_missing: bool
    others_too: bool = False  # whether the folder may hold further classes, which are ignored
    missing: list[str] = field(init=False)

    def __post_init__(self) -> None:
        _check_root(self.root)
        self.names = wordnet_ids(self.outputs)
        folders = class_folders(self.root)
        if not self.others_too and (unknown := sorted(folders - set(self.names))):
            raise InputError(f"{self.root} has a folder {unknown[0]}, which is none of its {len(self.names)} classes")
        self.missing = [name for name in self.names if name not in folders]
        _refuse(self.root, self.missing, self.allow_missing)

    def columns(self, subject: Subject) -> list[int]:
        """The model's outputs for these classes, in the order of their names."""
        places = {name: k for k, name in enumerate(output_names(subject, self.names))}
        count = cast(int, subject.model.model.num_classes)
        if len(places) != count or (unknown := [name for name in self.names if name not in places]):
            reason = f"does not know {unknown[0]}" if len(places) == count else f"has {count} classes"
            raise InputError(f"{self.root} needs a model of the 1,000 ImageNet classes: {subject.name} {reason}")
        return [places[name] for name in self.names]

    def pictures(self) -> Pictures:
        return Labelled(self.root, self.names)


def output_names(subject: Subject, folders: Iterable[str]) -> list[str]:
    """What a model's outputs are called: its own names, WordNet ids of an ImageNet model, or else as folders are."""
    if subject.model.classes is not None:
        return subject.model.classes
    ids = ImageNetInfo().label_names()
    of_imagenet = subject.model.model.num_classes == len(ids) and set(folders) <= set(ids)
    return ids if of_imagenet else sorted(folders)


def class_folders(root: Path) -> set[str]:
    """Names of the folders with pictures in them; at least two."""
    names = {folder.name for folder in root.iterdir() if folder.is_dir() and any(map(is_picture, folder.rglob("*")))}
    if len(names) < 2:
        raise InputError(f"{root} has {len(names)} class folders with pictures, at least 2 are needed")
    return names


def _check_root(root: Path) -> None:
    if not root.is_dir():
        raise InputError(f"there is no folder {root}")


def _refuse(root: Path, missing: list[str], allowed: bool) -> None:
    if missing and not allowed:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise InputError(f"{root} lacks {', '.join(missing[:5])}{more}: complete it, or pass --allow-missing")
