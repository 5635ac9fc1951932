"""An index: a folder with everything that search needs to know about pictures, but no picture.

    INDEX/
      index.json                  the model's hash and where it was found, mask ratio, grid of patches, creation time
      catalogue.sqlite            which picture is in which row of which chunk, and every file by its path
      chunk-000001.safetensors    Codes of some pictures

A picture is identified by the hash of its file's content: at two paths it is stored once. A chunk is written under a
temporary name and renamed, then one transaction of the catalogue makes it part of the index; chunk files that the
catalogue does not name are leftovers of a kill, and the next writer removes them. Deleting a picture rewrites its chunk
without it.
"""

import fcntl
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from mjp.aladin.index.catalogue import HAS_FILE, Catalogue, Entry, File, enter, forget
from mjp.aladin.index.chunks import MAX_ROWS, PATTERN, DamagedChunk, check_chunk, chunk_path, map_chunk, write_chunk
from mjp.aladin.index.config import INDEX_FILE, IndexConfig, has_index, read_index_config, write_index_config
from mjp.aladin.index.filters import Filter
from mjp.aladin.model.codes import Codes
from mjp.common.errors import InputError

CATALOGUE = "catalogue.sqlite"
LOCK = ".lock"
MAX_COPY = 2**30  # bytes of vectors that are copied into memory


class Index:
    """The content of the folder at the time of opening, memory-mapped, and the ways to change it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = read_index_config(folder)
        self.catalogue = Catalogue(folder / CATALOGUE)
        self._reload()

    def _reload(self) -> None:
        """Read the chunk layout from the catalogue."""
        self.__dict__.pop("chunks", None)
        self._matrix: Tensor | None = None
        self._asked = False
        self.layout = self.catalogue.chunks()
        self.ends = torch.tensor([count for _, count in self.layout], dtype=torch.int64).cumsum(0)

    # reading

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @cached_property
    def chunks(self) -> list[Codes]:
        """Vectors float32, tokens float16, straight from the disk."""
        return [self._mapped(number, rows) for number, rows in self.layout]

    def vectors(self) -> list[Tensor]:
        """All vectors (n, D), piece by piece, in the order of the rows.

        Asked again, an index that stays open has copied them into one matrix, if that is small enough: the product with
        it is a quarter faster than with many memory-mapped pieces.
        """
        pieces = [chunk.vector for chunk in self.chunks]
        if self._matrix is None and self._asked and sum(piece.nbytes for piece in pieces) <= MAX_COPY:
            self._matrix = torch.cat(pieces)
        self._asked = True
        return pieces if self._matrix is None else [self._matrix]

    def codes(self, rows: Tensor) -> Codes:
        """The codes of some rows, tokens as float32."""
        which = torch.bucketize(rows, self.ends, right=True)
        starts = self.ends - torch.tensor([count for _, count in self.layout])
        places = list(zip(which.tolist(), (rows - starts[which]).tolist(), strict=True))
        # views first, then one copy: a few rows of many chunks are read in microseconds
        codes = Codes(*(torch.stack([self.chunks[n][field][row] for n, row in places]) for field in range(4)))
        return codes._replace(tokens=codes.tokens.float())

    def _place(self, row: int) -> tuple[int, int]:
        """The chunk of a row, and its row in there."""
        chunk = int(torch.bucketize(torch.tensor(row), self.ends, right=True))
        return self.layout[chunk][0], row - (int(self.ends[chunk - 1]) if chunk else 0)

    def id(self, row: int) -> str:
        picture = self.catalogue.at(*self._place(row))
        if picture is None:
            raise InputError(f"{self.folder} changed after it was opened: open it again")
        return picture

    def entries(self, rows: Sequence[int]) -> list[Entry]:
        """The pictures in some rows, with their paths and dates."""
        places = [self._place(row) for row in rows]
        entries = self.catalogue.entries(places)
        if len(entries) < len(set(places)):
            raise InputError(f"{self.folder} changed after it was opened: open it again")
        return [entries[place] for place in places]

    def passing(self, condition: Filter) -> Tensor:
        """(N,) bool: the rows that pass a filter; without one, those whose picture still has a file."""
        firsts = {number: int(end) - rows for (number, rows), end in zip(self.layout, self.ends, strict=True)}
        text, values = condition.condition()
        places = self.catalogue.selected(text, *values) if condition else self.catalogue.without_file()
        chosen = torch.zeros(len(self), dtype=torch.bool)
        chosen[[firsts[chunk] + row for chunk, row in places if chunk in firsts]] = True
        return chosen if condition else ~chosen

    def row(self, picture: str) -> int | None:
        """The row of a picture; None if it is not in the index."""
        place = self.catalogue.place(picture)
        numbers = [number for number, _ in self.layout]
        if place is None or place.chunk not in numbers:
            return None
        chunk = numbers.index(place.chunk)
        return place.row + (int(self.ends[chunk - 1]) if chunk else 0)

    def bytes(self) -> int:
        """Size on disk."""
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())

    @property
    def stamp(self) -> str:
        """Changes when any vector does: chunks are never changed, and their numbers never reused."""
        return sha256(json.dumps(self.layout).encode()).hexdigest()[:12]

    def damaged_chunks(self) -> dict[int, str]:
        """What is wrong with which chunk. Reads all of them completely."""
        ids = {number: list[str]() for number, _ in self.layout}
        problems: dict[int, str] = {}
        for number, group in groupby(self.catalogue.places(), key=lambda place: place.chunk):
            places = list(group)
            ids[number] = [place.id for place in places]
            if [place.row for place in places] != list(range(len(places))):
                problems[number] = "its rows in the catalogue have gaps"
        widths: set[tuple[int, int]] = set()
        for number in sorted(ids):
            try:
                codes = check_chunk(chunk_path(self.folder, number), ids[number], model=self.config.model)
                widths.add((codes.vector.shape[1], codes.tokens.shape[2]))
                if len(widths) > 1:
                    widths.remove((codes.vector.shape[1], codes.tokens.shape[2]))
                    raise DamagedChunk("its vectors or tokens have another width")
            except DamagedChunk as error:
                problems.setdefault(number, str(error))
        counts = dict(self.layout)
        problems |= {n: "the catalogue contradicts itself" for n in ids if counts.get(n) != len(ids[n])}
        return problems

    # changing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock out other writers; clean up after one that was killed, and at the end after this one."""
        with open(self.folder / LOCK, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(f"another process is changing {self.folder}: wait until it has finished") from error
            self._reload()
            self._remove_leftovers()
            yield
            with self.catalogue.transaction() as db:
                self._tidy(db)
            self._reload()
            self._remove_leftovers()

    def add(self, ids: Sequence[str], codes: Codes | None, files: Sequence[File]) -> None:
        """Store pictures and record the state of files; all of it or none."""
        with self.catalogue.transaction() as db:
            if codes is not None:
                self._write(db, ids, codes)
            enter(db, files)
        self._reload()

    def delete(self, paths: Sequence[Path] = (), ids: Sequence[str] = ()) -> None:
        """Remove files, or pictures with all their files. A picture that is at another path too stays."""
        with self.writing():
            self.remove(paths, ids)

    def remove(self, paths: Sequence[Path] = (), ids: Sequence[str] = ()) -> None:
        """As `delete`, while `writing`. One transaction: no reader sees a picture without a file."""
        with self.catalogue.transaction() as db:
            forget(db, paths)
            db.executemany("DELETE FROM files WHERE id = ?", [(name,) for name in ids])
            self._tidy(db)

    def drop_chunks(self, numbers: Sequence[int]) -> None:
        """Take chunks out of the index while `writing`; their files are then listed by `catalogue.lost`."""
        with self.catalogue.transaction() as db:
            for statement in ("DELETE FROM pictures WHERE chunk = ?", "DELETE FROM chunks WHERE number = ?"):
                db.executemany(statement, [(number,) for number in numbers])
        self._reload()
        self._remove_leftovers()

    def _write(self, db: sqlite3.Connection, ids: Sequence[str], codes: Codes) -> None:
        number = db.execute("INSERT INTO chunks (count) VALUES (?)", (len(ids),)).lastrowid or 0
        write_chunk(chunk_path(self.folder, number), ids, codes, model=self.config.model)
        db.executemany("INSERT INTO pictures VALUES (?, ?, ?)", [(name, number, row) for row, name in enumerate(ids)])

    def _tidy(self, db: sqlite3.Connection) -> None:
        """Drop pictures without a file; rewrite chunks with gaps, and several small ones as one."""
        db.execute(f"DELETE FROM pictures WHERE NOT {HAS_FILE}")
        left = "(SELECT COUNT(*) FROM pictures WHERE chunk = number)"
        chunks = db.execute(f"SELECT number, count, {left} FROM chunks ORDER BY number").fetchall()
        for group in _groups(chunks):
            self._rewrite(db, group)

    def _rewrite(self, db: sqlite3.Connection, chunks: dict[int, int]) -> None:
        """One new chunk from what is left of old ones, rows by number."""
        here = f"({', '.join(map(str, chunks))})"
        places = db.execute(f"SELECT id, chunk, row FROM pictures WHERE chunk IN {here} ORDER BY chunk, row").fetchall()
        db.execute(f"DELETE FROM pictures WHERE chunk IN {here}")
        db.execute(f"DELETE FROM chunks WHERE number IN {here}")
        if places:
            parts = [
                [tensor[[row for _, chunk, row in places if chunk == number]] for tensor in self._mapped(number, rows)]
                for number, rows in chunks.items()
            ]
            self._write(db, [name for name, *_ in places], Codes(*map(torch.cat, zip(*parts, strict=True))))

    def _remove_leftovers(self) -> None:
        current = {chunk_path(self.folder, number) for number, _ in self.layout}
        stale = [path for path in self.folder.glob("*.faiss") if self.stamp not in path.name]
        for path in [*self.folder.glob(PATTERN), *stale]:
            if path not in current:
                path.unlink()

    def _mapped(self, number: int, rows: int) -> Codes:
        path = chunk_path(self.folder, number)
        try:
            return map_chunk(path, rows)
        except DamagedChunk as error:
            raise InputError(
                f"{path} cannot be used ({error}): mjp aladin index PICTURES -o {self.folder} repairs it"
            ) from error


def index_state(folder: Path) -> tuple[bytes, int, int] | None:
    """Changes whenever the index does: SQLite counts its commits in the head of the file. None if it cannot be read."""
    try:
        with open(folder / CATALOGUE, "rb") as file:
            head = file.read(28)
        stat = (folder / INDEX_FILE).stat()
    except OSError:
        return None
    return head[24:], stat.st_mtime_ns, stat.st_ino


def open_or_create(folder: Path, config: IndexConfig) -> Index:
    """The index in a folder, created if the folder is new or empty; refused if it was made in another way."""
    if not has_index(folder):
        _create(folder, config)
    index = Index(folder)
    index.config.check_same(config, folder)
    return index


def _create(folder: Path, config: IndexConfig) -> None:
    """index.json comes last: a folder without it is not an index yet, and is created again."""
    ours = (CATALOGUE, f".{Path(INDEX_FILE).stem}.")  # what a kill at this point may have left
    if folder.exists() and (not folder.is_dir() or not all(p.name.startswith(ours) for p in folder.iterdir())):
        raise InputError(f"{folder} exists and is not an index: choose a new or empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CATALOGUE).unlink(missing_ok=True)
    Catalogue(folder / CATALOGUE).create()
    write_index_config(folder, config)


def _groups(chunks: list[tuple[int, int, int]]) -> list[dict[int, int]]:
    """Chunks (number, rows, rows left) to rewrite, in groups that become one chunk each: rows by number."""
    groups: list[dict[int, int]] = [{}]
    total = 0
    gaps = {number for number, rows, left in chunks if left < rows}
    for number, rows, left in chunks:
        if number not in gaps and left > MAX_ROWS // 2:
            continue
        if total + left > MAX_ROWS:
            groups.append({})
            total = 0
        groups[-1][number] = rows
        total += left
    return [group for group in groups if len(group) > 1 or gaps.intersection(group)]
