"""Send an index to Qdrant, or bring a collection up to date with it.

What is there already is not sent again, so an interrupted push goes on where it stopped. Pictures that the index does
not contain any more are deleted.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import torch
from torch.nn.functional import normalize

from mjp.aladin.index.catalogue import File
from mjp.aladin.index.store import Index
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.search.qdrant import (
    FORMAT,
    IMAGE,
    PATCHES,
    Address,
    ask,
    check_maxsim,
    connect,
    path_text,
    read_address,
    read_config,
)
from mjp.common.errors import InputError
from mjp.common.progress import Progress
from mjp.common.validate import whole

SCROLL = 1000  # ids that are asked for at once


@dataclass
class PushReport:
    """What a push has done."""

    sent: int = 0
    updated: int = 0  # whose paths or dates have changed
    unchanged: int = 0
    deleted: int = 0


def push_index(folder: Path, to: str, *, batch: int = 64, model: str | None = None) -> PushReport:
    """Make a collection the image of an index."""
    whole("--batch", batch, least=1, most=1000)
    address = read_address(to)
    index = Index(folder)
    if not len(index):
        raise InputError(f"{folder} contains no pictures: mjp aladin index adds some")
    check_maxsim(find_aladin(model or index.config.source).config.alignment)
    client = connect(address.url)
    _prepare(client, address, index)
    return _Push(client, address, index).run(batch)


class _Push:
    def __init__(self, client: Any, address: Address, index: Index) -> None:
        self.client = client
        self.address = address
        self.index = index
        self.report = PushReport()
        self.files: dict[str, list[File]] = {}
        for file in index.catalogue.files("id IS NOT NULL"):
            self.files.setdefault(str(file.id), []).append(file)

    def run(self, batch: int) -> PushReport:
        there = self._there()
        rows = enumerate(self.index.catalogue.places())
        pictures = [(row, place.id) for row, place in rows if place.id in self.files]
        ids = [name for _, name in pictures]
        with Progress(len(ids), "pushing", unit="picture") as progress:
            for start in range(0, len(ids), batch):
                part = pictures[start : start + batch]
                self._send([(row, name) for row, name in part if name not in there])
                self._update([name for _, name in part if name in there and there[name] != self._payload(name)])
                progress.advance(len(part))
        self.report.unchanged = len(ids) - self.report.sent - self.report.updated
        self._delete(sorted(there.keys() - set(ids)))
        return self.report

    def _there(self) -> dict[str, dict[str, Any]]:
        """The payloads of the collection by id."""
        payloads: dict[str, dict[str, Any]] = {}
        offset = None
        while True:
            points, offset = self._ask("scroll", limit=SCROLL, offset=offset, with_payload=True, with_vectors=False)
            payloads |= {UUID(str(point.id)).hex: dict(point.payload) for point in points}
            if offset is None:
                return payloads

    def _send(self, rows: list[tuple[int, str]]) -> None:
        from qdrant_client import models

        if rows:
            codes = self.index.codes(torch.tensor([row for row, _ in rows]))
            points = [
                models.PointStruct(id=str(UUID(name)), vector=_vectors(codes, n), payload=self._payload(name, codes, n))
                for n, (_, name) in enumerate(rows)
            ]
            self._ask("upsert", points=points, wait=True)
            self.report.sent += len(points)

    def _update(self, names: Sequence[str]) -> None:
        for name in names:
            self._ask("overwrite_payload", payload=self._payload(name), points=[str(UUID(name))], wait=True)
        self.report.updated += len(names)

    def _delete(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), SCROLL):
            points = [str(UUID(name)) for name in names[start : start + SCROLL]]
            self._ask("delete", points_selector=points, wait=True)
        self.report.deleted = len(names)

    def _payload(self, name: str, codes: Codes | None = None, n: int = 0) -> dict[str, Any]:
        if codes is None and self.index.config.mask_ratio:
            codes, n = self.index.codes(torch.tensor([self.index.row(name)])), 0
        files = self.files[name]
        dates = [file.taken for file in files if file.taken is not None] or [file.modified for file in files]
        payload = {
            "id": name,
            "paths": [path_text(file.path) for file in files],
            "folders": sorted({path_text(parent) for file in files for parent in (file.path, *file.path.parents)}),
            "date": min(dates) // 10**9,  # seconds, to filter by
            "date_ns": str(min(dates)),  # numbers of JSON may lose digits
            "added": min(file.added for file in files) // 10**9,
        }
        hidden = [] if codes is None else codes.unknown[n].nonzero()[:, 0].tolist()
        return payload | ({"hidden": hidden} if hidden else {})

    def _ask(self, function: str, **settings: Any) -> Any:
        return ask(self.address, lambda: getattr(self.client, function)(self.address.collection, **settings))


def _vectors(codes: Codes, n: int) -> dict[str, Any]:
    patches = normalize(codes.tokens[n][codes.valid[n]], dim=-1)  # float16 leaves them not quite of length 1
    return {IMAGE: codes.vector[n].tolist(), PATCHES: patches.tolist()}


def _prepare(client: Any, address: Address, index: Index) -> None:
    """Create the collection, or refuse one of another model."""
    if ask(address, lambda: client.collection_exists(address.collection)):
        index.config.check_same(read_config(client, address), index.folder)
    else:
        _create(client, address, index)
    for field, kind in (("folders", "keyword"), ("date", "integer"), ("added", "integer")):  # again after a kill
        ask(address, lambda f=field, k=kind: client.create_payload_index(address.collection, f, k))


def _create(client: Any, address: Address, index: Index) -> None:
    from qdrant_client import models

    codes = index.codes(torch.tensor([0]))
    product = models.Distance.DOT  # of vectors of length 1; words are as long as they count
    maxsim = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
    off = models.HnswConfigDiff(m=0)  # patches are only compared for the pictures of the first stage
    vectors = {
        IMAGE: models.VectorParams(size=codes.vector.shape[1], distance=product),
        PATCHES: models.VectorParams(
            size=codes.tokens.shape[2], distance=product, multivector_config=maxsim, hnsw_config=off, on_disk=True
        ),
    }
    facts = {"format": FORMAT, **asdict(index.config)}
    ask(address, lambda: client.create_collection(address.collection, vectors_config=vectors, metadata=facts))
