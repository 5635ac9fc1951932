"""Pictures into an index: find them, tell the new ones, encode those, and say which could not be read.

A file whose size and time have not changed is not opened; a file whose content is known under another path is not
encoded. Every COMMIT pictures what was done is safe, so a kill costs seconds. What cannot be read today may be readable
tomorrow: a known picture keeps its entry, and what is below a folder that cannot be looked into is not taken for gone.

With a mask ratio γ a picture is encoded under a jigsaw that hides the positions of ⌊γN⌋ patches (E_unk); their tokens
are stored in an order that depends on their values alone. Which patches, follows from the picture's content: indexed
again, it gets the same entry. This hides the layout of the picture, not its content: every patch is still described.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from mjp.aladin.data.corpus import joined
from mjp.aladin.index.catalogue import File, forget
from mjp.aladin.index.store import FACTS, Index, IndexFacts, open_index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.vision import open_picture
from mjp.common.errors import InputError
from mjp.common.validate import number
from mjp.method.backbones import ViT
from mjp.method.model import MJP
from mjp.method.plan import Plan, sample_plan
from mjp.method.shuffle import image_grid
from mjp.pictures.sets import EXTENSIONS as COMMON

EXTENSIONS = COMMON | {".avif", ".heic", ".jp2"}
BATCH = 32  # pictures encoded at once
COMMIT = 256  # pictures between two points to which a kill can throw back
SHEET = "mjp aladin search"  # the Software of our own contact sheets, which may lie among the pictures


@dataclass
class Intake:
    """What happened to a folder of pictures."""

    added: int = 0  # encoded now
    linked: int = 0  # the same content as another file
    unchanged: int = 0  # not opened
    sheets: int = 0  # contact sheets of earlier searches, passed over
    unreadable: list[File] = field(default_factory=list)
    closed: dict[Path, str] = field(default_factory=dict)  # folders that cannot be looked into, and why
    gone: list[Path] = field(default_factory=list)  # in the index, not in the folder any more


class Encoder:
    """Prepared pictures into codes, under a jigsaw or not; refuses a backbone that cannot hide positions."""

    def __init__(self, model: Aladin, mask_ratio: float) -> None:
        self.model, self.ratio = model, number("--mask-ratio", mask_ratio, least=0, most=1)
        backbone = model.vision.model
        hides = isinstance(backbone, MJP) and backbone.unknown is not None and isinstance(backbone.adapter, ViT)
        if self.ratio and not hides:
            raise InputError(
                f"--mask-ratio needs a backbone that can hide positions, a ViT with E_unk; {model.vision.name} has "
                "none: leave the option out, or train on an MJP model"
            )

    def __call__(self, images: Tensor, ids: Sequence[str]) -> Codes:
        return self.model.encode_pictures(images, self.plan(images, ids) if self.ratio else None)

    def plan(self, images: Tensor, ids: Sequence[str]) -> Plan:
        """A jigsaw for every picture, drawn from its content's hash."""
        backbone: Any = self.model.vision.model
        return draw_plan(backbone, images, [int(name[:15], 16) for name in ids], self.ratio)

    def grid(self) -> tuple[int, int]:
        """Rows and columns of the patches."""
        (height, width), count = self.model.vision.size, self._blank().shape[1]
        rows = max(round((count * height / width) ** 0.5), 1)
        return rows, count // rows

    def _blank(self) -> Tensor:
        return self.model.vision.tokens(torch.zeros(1, 3, *self.model.vision.size)).patches


def draw_plan(backbone: MJP, images: Tensor, seeds: Sequence[int], ratio: float) -> Plan:
    """A jigsaw for every picture, each from a seed of its own, by the law that the backbone was trained with."""
    config, grid = backbone.config, image_grid(images, backbone.adapter.cell)
    law: dict[str, Any] = {"sampler": config.sampler, "min_block": config.min_block, "aspect": config.aspect}
    plans = [sample_plan(1, grid, ratio, generator=torch.Generator().manual_seed(s), **law) for s in seeds]
    mask, permutation, inverse = (torch.cat([plan[i] for plan in plans]) for i in range(3))  # type: ignore[misc]
    return Plan(mask, permutation, inverse, grid, plans[0].budget).to(next(backbone.parameters()).device)


def index_pictures(
    pictures: Path,
    out: Path,
    model: Aladin,
    source: str,
    *,
    mask_ratio: float = 0.0,
    prune: bool = False,
    workers: int = 1,
) -> tuple[Index, Intake]:
    """Bring an index up to date with a folder of pictures."""
    paths, closed = find_pictures(pictures)
    encoder, begun = Encoder(model, mask_ratio), not (out / FACTS).is_file()
    index = open_index(out, IndexFacts(model.hash, source, encoder.ratio, encoder.grid()))
    with index.writing():
        intake, todo = _compare(index, pictures, paths, closed)
        _take_in(index, encoder, todo, intake, workers)
        if prune:
            with index.catalogue.transaction() as db:
                forget(db, intake.gone)
    if not len(index):
        if begun:
            shutil.rmtree(out)
        reasons = "; ".join(f"{file.path}: {file.problem}" for file in intake.unreadable[:3]) or "only contact sheets"
        raise InputError(f"none of the {len(paths)} pictures in {pictures} can be read ({reasons})")
    return index, intake


def find_pictures(folder: Path) -> tuple[list[Path], dict[Path, str]]:
    """Every file under a folder that is named like a picture, hidden ones left out, by absolute path.

    And the folders that cannot be looked into, with the reason.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: give a folder with pictures in it")
    found, errors = [], list[OSError]()
    for home, folders, names in os.walk(folder.resolve(), onerror=errors.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        shown = sorted(name for name in names if not name.startswith("."))
        found += [Path(home, name) for name in shown if Path(name).suffix.lower() in EXTENSIONS]
    closed = {Path(error.filename): reason(error) for error in errors}
    if not found:
        unseen = "".join(f"; {printable(path)} cannot be looked into: {why}" for path, why in closed.items())
        raise InputError(f"{folder} holds no picture (by its ending: {', '.join(sorted(EXTENSIONS))}){unseen}")
    return found, closed


def _compare(
    index: Index, folder: Path, paths: list[Path], closed: dict[Path, str]
) -> tuple[Intake, dict[Path, str | None]]:
    """What is known already, and what has to be looked at, with the content that it had last time."""
    before = {file.path: file for file in index.catalogue.below(folder.resolve())}
    absent = before.keys() - set(paths)
    intake = Intake(closed=closed, gone=sorted(path for path in absent if closed.keys().isdisjoint(path.parents)))
    todo: dict[Path, str | None] = {}
    for path in paths:
        file = before.get(path)
        if file is None or file.problem is not None or (file.bytes, file.modified) != _state(path):
            todo[path] = file and file.id
        elif file.id is None:
            intake.sheets += 1
        else:
            intake.unchanged += 1
    return intake, todo


def _take_in(index: Index, encoder: Encoder, todo: dict[Path, str | None], intake: Intake, workers: int) -> None:
    known = index.catalogue.known()
    data = _Files(todo, known, encoder.model.vision.prepare)
    loader = DataLoader(data, min(BATCH, COMMIT), num_workers=workers, collate_fn=list)
    ids: list[str] = []
    parts: list[Codes] = []
    files: list[File] = []

    def commit() -> None:
        index.add(ids, joined(parts) if parts else None, files)
        for done in (ids, parts, files):
            done.clear()

    for folder, why in intake.closed.items():
        tqdm.write(f"unreadable: {printable(folder)}: {why}")
    with tqdm(total=len(todo), desc="indexing", unit="picture", disable=None) as bar:
        for items in loader:
            new = {file.id: image for file, image in items if image is not None and file.id not in known}
            if new:
                names = [str(name) for name in new]
                parts.append(encoder(torch.stack(list(new.values())), names))
                ids += names
                known.update(names)
            for file, _ in items:
                files.append(file)
                if file.problem is not None:
                    intake.unreadable.append(file)
                    tqdm.write(f"unreadable: {printable(file.path)}: {file.problem}")
            intake.added += len(new)
            read = [file.id for file, _ in items if file.problem is None]
            intake.sheets += read.count(None)
            intake.linked += len(read) - read.count(None) - len(new)
            bar.update(len(items))
            if len(files) >= COMMIT:
                commit()
        commit()


class _Files(Dataset[tuple[File, Tensor | None]]):
    """Files by number, as what they were found to be, with the prepared picture if its content is new."""

    def __init__(self, todo: dict[Path, str | None], known: set[str], prepare: Callable[[Image.Image], Tensor]) -> None:
        self.files, self.known, self.prepare = list(todo.items()), frozenset(known), prepare

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, k: int) -> tuple[File, Tensor | None]:
        path, before = self.files[k]
        size, modified = _state(path)
        try:
            if not path.is_file():  # a link to nothing, or a pipe that would never end
                raise InputError("not a regular file")
            if not size:
                raise InputError("the file is empty")
            name = content_hash(path)
            if name in self.known:
                return File(path, name, None, size, modified), None
            picture = open_picture(path)
            if picture.info.get("Software") == SHEET:
                return File(path, None, None, size, modified), None
            return File(path, name, None, size, modified), self.prepare(picture)
        except Exception as error:  # whatever a decoder raises over a broken file must not end a night's work
            return File(path, before, reason(error), size, modified), None


def content_hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def reason(error: Exception) -> str:
    """Why a file is no picture, in a few words."""
    if isinstance(error, Image.DecompressionBombError):
        return f"more than {2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6} million pixels"
    if isinstance(error, Image.UnidentifiedImageError):
        return "not a picture of a kind that can be read here"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:200] or type(error).__name__


def printable(text: object) -> str:
    """Fit for a terminal: file names may hold control characters and bytes that are no text."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(text))


def _state(path: Path) -> tuple[int, int]:
    """Size and time of change; of a file that has gone or may not be looked at: none."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns
