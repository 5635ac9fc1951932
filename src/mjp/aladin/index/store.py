"""An index: a folder with all that search needs to know about pictures, and no picture.

    INDEX/
      index.json                  the model's hash and where it was found, mask ratio, grid of patches, when begun
      catalogue.sqlite            which picture is in which row of which chunk, and every file by its path
      chunk-000001.safetensors    Codes of some pictures: float32 vectors, float16 tokens; memory-mapped, never changed

A picture is known by the hash of its file's content: at two paths it is stored once. A chunk is written under a
temporary name and renamed, then one transaction of the catalogue makes it count; chunks that the catalogue does not
name are leftovers of a kill and are removed by whoever writes next. Deleting writes the chunk anew without the picture.
"""

import fcntl
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mjp.aladin.index.catalogue import Catalogue, File, enter, forget
from mjp.aladin.model.codes import Codes
from mjp.common.errors import InputError
from mjp.common.files import write_atomically

FORMAT = "mjp-aladin-index-1"
FACTS, CATALOGUE, LOCK = "index.json", "catalogue.sqlite", ".lock"
LARGEST = 4096  # rows of a chunk: 50 MB at 49 tokens of width 128


@dataclass(frozen=True)
class IndexFacts:
    """What the entries of an index have in common."""

    model: str  # hash
    source: str  # where that model was found: a folder, or the name of a shipped one
    mask_ratio: float  # γ under which every picture was encoded
    grid: tuple[int, int]  # patches of a picture, rows and columns
    created: str = ""


class Index:
    """What is in the folder at the moment of opening, memory-mapped; and the three ways to change it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.facts = folder, _read_facts(folder)
        self.catalogue = Catalogue(folder / CATALOGUE)
        self._look()

    def _look(self) -> None:
        """Take the present state for the state of the index."""
        self.__dict__.pop("chunks", None)
        self.layout = self.catalogue.chunks()
        self.ends = torch.tensor([count for _, count in self.layout], dtype=torch.int64).cumsum(0)

    # reading

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @cached_property
    def chunks(self) -> list[Codes]:
        """Vectors float32, tokens float16, straight from the disk."""
        return [_mapped(self._path(number)) for number, _ in self.layout]

    def codes(self, rows: Tensor) -> Codes:
        """The codes of some rows, tokens as float32."""
        which = torch.bucketize(rows, self.ends, right=True)
        parts, places = [], []
        for chunk in which.unique().tolist():
            mine = (which == chunk).nonzero()[:, 0]
            first = int(self.ends[chunk - 1]) if chunk else 0
            parts.append([tensor[rows[mine] - first] for tensor in self.chunks[chunk]])
            places.append(mine)
        order = torch.cat(places).argsort()
        found = Codes(*(torch.cat(column)[order] for column in zip(*parts, strict=True)))
        return found._replace(tokens=found.tokens.float())

    def id(self, row: int) -> str:
        chunk = int(torch.bucketize(torch.tensor(row), self.ends, right=True))
        first = int(self.ends[chunk - 1]) if chunk else 0
        found = self.catalogue.at(self.layout[chunk][0], row - first)
        if found is None:
            raise InputError(f"{self.folder} has changed in the meantime: open it again")
        return found

    def row(self, picture: str) -> int | None:
        """Where a picture is; None if it is not in the index."""
        place, numbers = self.catalogue.place(picture), [number for number, _ in self.layout]
        if place is None or place.chunk not in numbers:
            return None
        chunk = numbers.index(place.chunk)
        return place.row + (int(self.ends[chunk - 1]) if chunk else 0)

    def check_model(self, model: str) -> None:
        """Refuse a model whose codes cannot be compared with these."""
        if model != self.facts.model:
            raise InputError(
                f"{self.folder} was made by another model ({self.facts.model}, from {self.facts.source}; this one is "
                f"{model}): give that one as --model, or index the pictures into another folder"
            )

    def bytes(self) -> int:
        """Size on disk."""
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())

    @property
    def stamp(self) -> str:
        """Changes when any vector does: chunks are never changed, and their numbers never given twice."""
        return sha256(json.dumps(self.layout).encode()).hexdigest()[:12]

    # changing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other writers away; clean up after one that was killed, and at the end after ourselves."""
        with open(self.folder / LOCK, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(f"another process is changing {self.folder}: wait until it is done") from error
            self._look()
            self._remove_leftovers()
            yield
            self._tidy()
            self._look()
            self._remove_leftovers()

    def add(self, ids: Sequence[str], codes: Codes | None, files: Sequence[File]) -> None:
        """Store pictures, and say what was found about files; all of it or nothing."""
        with self.catalogue.transaction() as db:
            if codes is not None:
                self._write(db, ids, codes)
            enter(db, files)
        self._look()

    def delete(self, paths: Sequence[Path] = (), ids: Sequence[str] = ()) -> None:
        """Forget files, or pictures with all their files. A picture that lies at another path too stays."""
        with self.writing(), self.catalogue.transaction() as db:
            forget(db, paths)
            db.executemany("DELETE FROM files WHERE id = ?", [(name,) for name in ids])

    def _write(self, db: sqlite3.Connection, ids: Sequence[str], codes: Codes) -> None:
        number = db.execute("INSERT INTO chunks (count) VALUES (?)", (len(ids),)).lastrowid
        stored = codes._replace(vector=codes.vector.float(), tokens=codes.tokens.half())
        tensors = {name: tensor.cpu().contiguous() for name, tensor in stored._asdict().items()}
        write_atomically(self._path(number or 0), lambda path: save_file(tensors, path))
        db.executemany("INSERT INTO pictures VALUES (?, ?, ?)", [(name, number, row) for row, name in enumerate(ids)])

    def _tidy(self) -> None:
        """Drop pictures without a file; write chunks with gaps anew, and several small ones as one."""
        with self.catalogue.transaction() as db:
            db.execute("DELETE FROM pictures WHERE id NOT IN (SELECT id FROM files WHERE id IS NOT NULL)")
            left = "(SELECT COUNT(*) FROM pictures WHERE chunk = number)"
            rows = db.execute(f"SELECT number, count, {left} FROM chunks ORDER BY number").fetchall()
            for group in _groups(rows):
                self._rewrite(db, group)

    def _rewrite(self, db: sqlite3.Connection, numbers: list[int]) -> None:
        """One new chunk from what is left of old ones."""
        here = f"({', '.join(map(str, numbers))})"
        kept = db.execute(f"SELECT id, chunk, row FROM pictures WHERE chunk IN {here} ORDER BY chunk, row").fetchall()
        db.execute(f"DELETE FROM pictures WHERE chunk IN {here}")
        db.execute(f"DELETE FROM chunks WHERE number IN {here}")
        if kept:
            parts = [
                [tensor[[row for _, chunk, row in kept if chunk == number]] for tensor in _mapped(self._path(number))]
                for number in numbers
            ]
            self._write(db, [name for name, *_ in kept], Codes(*map(torch.cat, zip(*parts, strict=True))))

    def _remove_leftovers(self) -> None:
        named = {self._path(number) for number, _ in self.layout}
        stale = [path for path in self.folder.glob("*.faiss") if self.stamp not in path.name]
        for path in [*self.folder.glob("chunk-*"), *stale]:
            if path not in named:
                path.unlink()

    def _path(self, number: int) -> Path:
        return self.folder / f"chunk-{number:06}.safetensors"


def open_index(folder: Path, facts: IndexFacts) -> Index:
    """The index in a folder, begun there if the folder is new or empty; one with other facts is refused."""
    if not (folder / FACTS).is_file():
        _begin(folder, facts)
    index = Index(folder)
    index.check_model(facts.model)
    if index.facts.mask_ratio != facts.mask_ratio:
        raise InputError(
            f"{folder} was made with --mask-ratio {index.facts.mask_ratio:g}, not {facts.mask_ratio:g}: use the same "
            "ratio, or another folder"
        )
    return index


def _begin(folder: Path, facts: IndexFacts) -> None:
    """index.json comes last: a folder without it is no index yet, and is begun again."""
    ours = (CATALOGUE, ".index.")  # what a kill at the first moment may have left
    if folder.exists() and (not folder.is_dir() or not all(p.name.startswith(ours) for p in folder.iterdir())):
        raise InputError(f"{folder} is there and is no index: choose a new or empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CATALOGUE).unlink(missing_ok=True)
    Catalogue(folder / CATALOGUE).create()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    text = json.dumps({"format": FORMAT, **asdict(replace(facts, created=now))}, indent=2) + "\n"
    write_atomically(folder / FACTS, lambda path: path.write_text(text))


def _read_facts(folder: Path) -> IndexFacts:
    if not (folder / FACTS).is_file():
        raise InputError(f"{folder} is no index: mjp aladin index PICTURES -o {folder} makes one")
    try:
        facts: dict[str, Any] = json.loads((folder / FACTS).read_text())
        if facts.pop("format") != FORMAT:
            raise KeyError("format")
        rows, columns = facts.pop("grid")
        return IndexFacts(**facts, grid=(int(rows), int(columns)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / FACTS} is not that of an index: index the pictures anew") from error


def _mapped(path: Path) -> Codes:
    """A chunk, memory-mapped: rows are read when they are looked at."""
    try:
        with safe_open(path, "pt") as file:
            return Codes(*(file.get_tensor(name) for name in Codes._fields))
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} is missing or damaged ({error}): open the index again, or make it anew") from error


def _groups(chunks: list[tuple[int, int, int]]) -> list[list[int]]:
    """Chunks (number, rows, rows left) to be written anew, in groups that become one chunk each."""
    groups: list[list[int]] = [[]]
    total, gaps = 0, {number for number, rows, left in chunks if left < rows}
    for number, _, left in chunks:
        if number not in gaps and left > LARGEST // 2:
            continue
        if total + left > LARGEST:
            groups.append([])
            total = 0
        groups[-1].append(number)
        total += left
    return [group for group in groups if len(group) > 1 or gaps.intersection(group)]
