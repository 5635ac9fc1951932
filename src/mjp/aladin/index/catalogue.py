"""The catalogue of an index: which picture is in which row of which chunk, and the state of every file.

One SQLite file. A change to the index takes effect when its transaction here commits, and not before: a kill leaves the
index as it was. Paths are stored as the bytes of the file system, which need not be valid text.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mjp.common.errors import InputError
from mjp.common.terminal import printable

SCHEMA = """
CREATE TABLE chunks (number INTEGER PRIMARY KEY AUTOINCREMENT, count INTEGER NOT NULL);
CREATE TABLE pictures (id TEXT PRIMARY KEY, chunk INTEGER NOT NULL, row INTEGER NOT NULL);
CREATE UNIQUE INDEX places ON pictures (chunk, row);
CREATE TABLE files (path BLOB PRIMARY KEY, id TEXT, problem TEXT, bytes INTEGER NOT NULL, modified INTEGER NOT NULL,
  taken INTEGER, added INTEGER NOT NULL);
CREATE INDEX owners ON files (id);
"""
TEXT_OR_NULL = (str, type(None))
NUMBER_OR_NULL = (int, type(None))
FILE_COLUMNS = "path, id, problem, bytes, modified, taken, added"
FILE_TYPES = (bytes, TEXT_OR_NULL, TEXT_OR_NULL, int, int, NUMBER_OR_NULL, int)
PLACE_TYPES = (str, int, int)
HAS_FILE = "EXISTS (SELECT 1 FROM files WHERE files.id = pictures.id)"
MAX_PLACES = 5000  # in one query: SQLite takes 32,766 values


class File(NamedTuple):
    """A file when it was last read: a picture (id), an unreadable file (problem), or a contact sheet (neither)."""

    path: Path
    id: str | None  # hash of the content; of an unreadable file, of the content that it had before
    problem: str | None
    bytes: int
    modified: int  # nanoseconds
    taken: int | None = None  # nanoseconds; None if the file does not say
    added: int = 0  # nanoseconds, when the index first saw this content at this path; 0 for now


class Entry(NamedTuple):
    """A picture by its place, with what people want to know about it."""

    id: str
    paths: list[Path]
    date: int  # nanoseconds: when it was taken, else when its oldest file was last changed


class Place(NamedTuple):
    """Where the codes of a picture are."""

    id: str
    chunk: int
    row: int


class _Reader:
    """A connection for queries alone, closed with its owner; opening one takes longer than most queries.

    It may write all the same: whoever reads first after a kill takes back what was half committed.
    """

    def __init__(self, path: Path) -> None:
        address = path.resolve().as_uri() + "?mode=rw"  # not created; read-only where it cannot be written
        self.db = sqlite3.connect(address, uri=True, timeout=30, check_same_thread=False)  # whoever closes it
        self.db.execute("PRAGMA query_only = ON")

    def __del__(self) -> None:
        if hasattr(self, "db"):
            self.db.close()


class Catalogue:
    """Queries to the SQLite file. Every thread reads through its own connection."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.readers = threading.local()

    def create(self) -> None:
        with self.transaction() as db:
            for statement in SCHEMA.strip().split(";\n"):
                db.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that happens inside, or none of it."""
        try:
            with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
                db.execute("PRAGMA secure_delete = ON")  # deleted content is overwritten, not just unlinked
                db.execute("BEGIN IMMEDIATE")
                yield db
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error

    def ask(self, question: str, *values: object, types: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """The rows of an answer, whose columns must have these types: SQLite stores anything anywhere."""
        try:
            if not hasattr(self.readers, "current"):
                self.readers.current = _Reader(self.path)
            rows = self.readers.current.db.execute(question, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error
        for row in rows:
            if not all(map(isinstance, row, types)):
                raise InputError(f"{self.path} is damaged (a row has the wrong type): index the pictures again")
        return rows

    def chunks(self) -> list[tuple[int, int]]:
        """(number, rows) of every chunk."""
        chunks = self.ask("SELECT number, count FROM chunks ORDER BY number", types=(int, int))
        if any(number < 1 or count < 1 for number, count in chunks):
            raise InputError(f"{self.path} is damaged (a chunk without rows): index the pictures again")
        return [(number, count) for number, count in chunks]

    def files(self, where: str = "1", *values: object) -> list[File]:
        question = f"SELECT {FILE_COLUMNS} FROM files WHERE {where} ORDER BY path"
        return [File(path_of(path), *rest) for path, *rest in self.ask(question, *values, types=FILE_TYPES)]

    def below(self, folder: Path) -> list[File]:
        """The files under a folder, or the file of that path."""
        return self.files("path = ? OR substr(path, 1, ?) = ?", *prefix_of(folder))

    def paths(self, picture: str) -> list[Path]:
        return [file.path for file in self.files("id = ?", picture)]

    def lost(self) -> list[File]:
        """Files whose picture has no codes, because the chunk was damaged and removed."""
        return self.files("id IS NOT NULL AND id NOT IN (SELECT id FROM pictures)")

    def place(self, picture: str) -> Place | None:
        question = f"SELECT id, chunk, row FROM pictures WHERE id = ? AND {HAS_FILE}"
        places = self.ask(question, picture, types=PLACE_TYPES)
        return Place(*places[0]) if places else None

    def without_file(self) -> list[tuple[int, int]]:
        """(chunk, row) of pictures whose file has another content by now, until the writer drops them at its end."""
        question = f"SELECT chunk, row FROM pictures WHERE NOT {HAS_FILE}"
        return [(chunk, row) for chunk, row in self.ask(question, types=(int, int))]

    def at(self, chunk: int, row: int) -> str | None:
        """The picture in that row."""
        rows = self.ask("SELECT id FROM pictures WHERE chunk = ? AND row = ?", chunk, row, types=(str,))
        return rows[0][0] if rows else None

    def entries(self, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Entry]:
        """The pictures at (chunk, row), with their paths; asked in one query, which takes a fraction of many."""
        rows: list[tuple[Any, ...]] = []
        for start in range(0, len(places), MAX_PLACES):
            part = places[start : start + MAX_PLACES]
            question = (
                f"WITH wanted(chunk, row) AS (VALUES {', '.join(['(?, ?)'] * len(part))}) "
                "SELECT p.chunk, p.row, p.id, f.path, f.taken, f.modified FROM wanted JOIN pictures p "
                "ON p.chunk = wanted.chunk AND p.row = wanted.row JOIN files f ON f.id = p.id ORDER BY f.path"
            )
            types = (int, int, str, bytes, NUMBER_OR_NULL, int)
            rows += self.ask(question, *(number for place in part for number in place), types=types)
        files: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
        for chunk, row, *file in rows:
            files.setdefault((chunk, row), []).append(tuple(file))
        return {place: _entry(group) for place, group in files.items()}

    def selected(self, having: str, *values: object) -> list[tuple[int, int]]:
        """(chunk, row) of the pictures whose files f, taken together, meet a condition."""
        question = f"SELECT p.chunk, p.row FROM pictures p JOIN files f ON f.id = p.id GROUP BY p.id HAVING {having}"
        return [(chunk, row) for chunk, row in self.ask(question, *values, types=(int, int))]

    def places(self) -> list[Place]:
        """Every picture, in the order of the chunks and their rows."""
        question = "SELECT id, chunk, row FROM pictures ORDER BY chunk, row"
        return [Place(*row) for row in self.ask(question, types=PLACE_TYPES)]

    def ids(self) -> set[str]:
        return {name for (name,) in self.ask("SELECT id FROM pictures", types=(str,))}

    def _unusable(self, error: sqlite3.DatabaseError) -> InputError:
        reason = printable(error)[:80]  # SQLite quotes what it cannot decode
        remedy = "if damaged, index the pictures again, into a new folder"
        return InputError(f"{self.path} is missing, locked or damaged ({reason}); {remedy}")


def enter(db: sqlite3.Connection, files: Iterable[File]) -> None:
    """Record the state of files. Of the same content at the same path the dates stay."""
    rows = [(os.fsencode(file.path), *file[1:-1], file.added or time.time_ns()) for file in files]
    same = "files.id IS excluded.id"
    db.executemany(
        f"INSERT INTO files ({FILE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO UPDATE SET "
        "id = excluded.id, problem = excluded.problem, bytes = excluded.bytes, modified = excluded.modified, "
        f"taken = CASE WHEN {same} THEN COALESCE(excluded.taken, files.taken) ELSE excluded.taken END, "
        f"added = CASE WHEN {same} THEN files.added ELSE excluded.added END",
        rows,
    )


def forget(db: sqlite3.Connection, paths: Iterable[Path]) -> None:
    db.executemany("DELETE FROM files WHERE path = ?", [(os.fsencode(path),) for path in paths])


def path_of(stored: bytes) -> Path:
    return Path(os.fsdecode(stored))


def _entry(files: list[tuple[Any, ...]]) -> Entry:
    """A picture from its (id, path, taken, modified)."""
    taken = [date for _, _, date, _ in files if date is not None]
    date = min(taken or [modified for *_, modified in files])
    return Entry(files[0][0], [path_of(path) for _, path, *_ in files], date)


def prefix_of(folder: Path) -> tuple[bytes, int, bytes]:
    """A folder's own path, and length and text of what the paths below it begin with."""
    name = os.fsencode(folder)
    start = name.rstrip(b"/") + b"/"
    return name, len(start), start
