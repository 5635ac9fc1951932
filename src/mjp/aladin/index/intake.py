"""Pictures into an index: find them, select the new ones, encode those, and report which could not be read.

A file whose size and time have not changed is not opened; a file whose content is stored under another path is not
encoded again. Work is committed every COMMIT_PICTURES pictures and every COMMIT_SECONDS seconds, so a kill costs
seconds. What cannot be read today may be readable tomorrow: a stored picture keeps its entry, and files below a folder
that cannot be opened are not taken for deleted. Chunks that are damaged are dropped, and their pictures encoded again.
"""

import shutil
from pathlib import Path
from time import monotonic

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from mjp.aladin.index.catalogue import File
from mjp.aladin.index.chunks import chunk_path
from mjp.aladin.index.config import IndexConfig, has_index, read_index_config
from mjp.aladin.index.encode import PictureEncoder
from mjp.aladin.index.reading import PictureFiles, PictureReader
from mjp.aladin.index.report import IndexReport
from mjp.aladin.index.scan import Scan, file_state, find_pictures
from mjp.aladin.index.store import Index, open_or_create
from mjp.aladin.index.thumbnails import forget_thumbnails
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes, joined
from mjp.aladin.model.shipped import SHIPPED, find_aladin, source_of
from mjp.common.device import pick_device
from mjp.common.errors import InputError
from mjp.common.progress import say, track
from mjp.common.terminal import printable
from mjp.common.validate import whole
from mjp.common.validate import workers as check_workers

BATCH = 32  # pictures encoded at once
COMMIT_PICTURES = 256
COMMIT_SECONDS = 5.0


def index_pictures(
    pictures: str | Path,
    out: str | Path,
    *,
    model: str | Path | Aladin | None = None,
    mask_ratio: float | None = None,
    prune: bool = False,
    workers: int = 1,
    max_pixels: int | None = None,
    device: str = "auto",
) -> IndexReport:
    """Make a folder of pictures searchable, or bring its index up to date.

    Args:
        pictures: folder of pictures, including its subfolders.
        out: folder of the index; created if it does not exist.
        model: a model, its folder, or "aladin-flickr8k"; default: the index's own, for a new index aladin-flickr8k.
        mask_ratio: share of patches whose position is hidden; default: the index's own, for a new index 0.
        prune: remove pictures from the index that are no longer in the folder.
        workers: processes that read pictures.
        max_pixels: refuse pictures with more pixels; default: 100 million, or the variable MJP_MAX_PIXELS.
        device: auto, cpu, cuda, ...

    Returns:
        What was encoded, linked, unreadable or missing, and the index.
    """
    pictures, out = Path(pictures), Path(out)
    check_workers("--workers", workers)
    if max_pixels is not None:
        whole("--max-pixels", max_pixels, least=1)
    scan = find_pictures(pictures)
    existing = read_index_config(out) if has_index(out) else None
    encoder = _encoder(model, mask_ratio, existing, device)
    aladin = encoder.model
    index = open_or_create(out, IndexConfig(aladin.hash, source_of(aladin), encoder.ratio, encoder.grid()))
    reader = PictureReader(aladin.vision.prepare, max_pixels, 2 * max(aladin.vision.size))
    report = IndexReport(index, closed=scan.closed, pruned=prune)
    with index.writing():
        _repair(index, report)
        _add(index, encoder, _select(index, pictures, scan, report), reader, report, workers)
        if prune:
            index.remove(report.missing)
            forget_thumbnails(out)
    if not len(index):
        if existing is None:
            shutil.rmtree(out)
        reasons = "; ".join(f"{file.path}: {file.problem}" for file in report.unreadable[:3]) or "only contact sheets"
        raise InputError(f"none of the {len(scan.paths)} pictures in {pictures} can be read ({reasons})")
    return report


def _encoder(
    model: str | Path | Aladin | None, mask_ratio: float | None, existing: IndexConfig | None, device: str
) -> PictureEncoder:
    """What was asked for, else what the existing index was made with, else the defaults."""
    if not isinstance(model, Aladin):
        model = find_aladin(str(model or (existing.source if existing else SHIPPED)), searchable=True)
    if mask_ratio is None:
        mask_ratio = existing.mask_ratio if existing else 0.0
    return PictureEncoder(model.to(pick_device(device)), mask_ratio)


def _repair(index: Index, report: IndexReport) -> None:
    """Drop damaged chunks: their pictures have no codes afterwards, and `_select` takes them."""
    damaged = index.damaged_chunks()
    if damaged:
        report.repaired = {chunk_path(index.folder, n).name: reason for n, reason in sorted(damaged.items())}
        for name, reason in report.repaired.items():
            say(f"damaged: {name}: {reason}; its pictures are encoded again")
        index.drop_chunks(list(damaged))


def _select(index: Index, folder: Path, scan: Scan, report: IndexReport) -> dict[Path, str | None]:
    """The files to read, each with the content that it had last time."""
    stored = {file.path: file for file in index.catalogue.below(folder.resolve())}
    lost = {file.path: file.id for file in index.catalogue.lost()}
    absent = stored.keys() - set(scan.paths)
    report.missing = sorted(path for path in absent if scan.closed.keys().isdisjoint(path.parents))
    selected: dict[Path, str | None] = {path: name for path, name in lost.items() if path not in report.missing}
    for path in scan.paths:
        file = stored.get(path)
        if file is None or file.problem is not None or (file.bytes, file.modified) != file_state(path):
            selected[path] = file and file.id
        elif file.id is None:
            report.sheets += 1
        elif path not in lost:
            report.unchanged += 1
    return selected


def _add(
    index: Index,
    encoder: PictureEncoder,
    selected: dict[Path, str | None],
    reader: PictureReader,
    report: IndexReport,
    workers: int,
) -> None:
    """Read, encode and store files."""
    for folder, reason in report.closed.items():
        say(f"unreadable: {printable(folder)}: {reason}")
    batch = _Batch(index, encoder, report)
    files = PictureFiles(selected, frozenset(batch.stored), reader)
    prefetch = BATCH if workers else None
    loader = DataLoader(files, batch_size=None, num_workers=workers, prefetch_factor=prefetch)
    for file, image in track(loader, "indexing", total=len(selected)):
        batch.add(file, image)
    batch.commit()


class _Batch:
    """What was read and is not yet in the index."""

    def __init__(self, index: Index, encoder: PictureEncoder, report: IndexReport) -> None:
        self.index = index
        self.encoder = encoder
        self.report = report
        self.stored = index.catalogue.ids()
        self.images: dict[str, Tensor] = {}  # to be encoded
        self.ids: list[str] = []  # encoded, as `parts`
        self.parts: list[Codes] = []
        self.files: list[File] = []
        self.committed = monotonic()

    def add(self, file: File, image: Tensor | None) -> None:
        self._count(file, image)
        self.files.append(file)
        if image is not None and file.id is not None and file.id not in self.stored:
            self.images[file.id] = image
            self.stored.add(file.id)
        late = monotonic() - self.committed > COMMIT_SECONDS
        if late or len(self.images) == min(BATCH, COMMIT_PICTURES):
            self._encode()
        if late or len(self.files) >= COMMIT_PICTURES:
            self.commit()

    def commit(self) -> None:
        self._encode()
        self.index.add(self.ids, joined(self.parts) if self.parts else None, self.files)
        self.ids, self.parts, self.files = [], [], []
        self.committed = monotonic()

    def _encode(self) -> None:
        if self.images:
            ids = list(self.images)
            self.parts.append(self.encoder(torch.stack(list(self.images.values())), ids))
            self.ids += ids
            self.images = {}

    def _count(self, file: File, image: Tensor | None) -> None:
        if file.problem is not None:
            self.report.unreadable.append(file)
            say(f"unreadable: {printable(file.path)}: {file.problem}")
        elif file.id is None:
            self.report.sheets += 1
        elif image is not None and file.id not in self.stored:
            self.report.added += 1
        else:
            self.report.linked += 1
