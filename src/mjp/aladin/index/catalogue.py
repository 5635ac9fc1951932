"""The catalogue of an index: which picture is in which row of which chunk, and the state of every file.

One SQLite file. A change to the index takes effect when its transaction here commits, and not before: a kill leaves the
index as it was. Paths are stored as the bytes of the file system, which need not be valid text.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mjp.common.errors import InputError
from mjp.common.terminal import printable

SCHEMA = """
CREATE TABLE chunks (number INTEGER PRIMARY KEY AUTOINCREMENT, count INTEGER NOT NULL);
CREATE TABLE pictures (id TEXT PRIMARY KEY, chunk INTEGER NOT NULL, row INTEGER NOT NULL);
CREATE UNIQUE INDEX places ON pictures (chunk, row);
CREATE TABLE files (path BLOB PRIMARY KEY, id TEXT, problem TEXT, bytes INTEGER NOT NULL, modified INTEGER NOT NULL);
CREATE INDEX owners ON files (id);
"""
TEXT_OR_NULL = (str, type(None))
FILE_TYPES = (bytes, TEXT_OR_NULL, TEXT_OR_NULL, int, int)
PLACE_TYPES = (str, int, int)


class File(NamedTuple):
    """A file when it was last read: a picture (id), an unreadable file (problem), or a contact sheet (neither)."""

    path: Path
    id: str | None  # hash of the content; of an unreadable file, of the content that it had before
    problem: str | None
    bytes: int
    modified: int  # nanoseconds


class Place(NamedTuple):
    """Where the codes of a picture are."""

    id: str
    chunk: int
    row: int


class Catalogue:
    """Queries to the SQLite file. Each opens its own connection, so threads need not share one."""

    def __init__(self, path: Path) -> None:
        self.path = path

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
            with closing(sqlite3.connect(self.path.resolve().as_uri() + "?mode=ro", uri=True, timeout=30)) as db:
                rows = db.execute(question, values).fetchall()
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
        question = f"SELECT path, id, problem, bytes, modified FROM files WHERE {where} ORDER BY path"
        return [File(path_of(path), *rest) for path, *rest in self.ask(question, *values, types=FILE_TYPES)]

    def below(self, folder: Path) -> list[File]:
        """The files under a folder, or the file of that path."""
        return self.files("path = ? OR substr(path, 1, ?) = ?", *_prefix(folder))

    def paths(self, picture: str) -> list[Path]:
        return [file.path for file in self.files("id = ?", picture)]

    def lost(self) -> list[File]:
        """Files whose picture has no codes, because the chunk was damaged and removed."""
        return self.files("id IS NOT NULL AND id NOT IN (SELECT id FROM pictures)")

    def place(self, picture: str) -> Place | None:
        places = self.ask("SELECT id, chunk, row FROM pictures WHERE id = ?", picture, types=PLACE_TYPES)
        return Place(*places[0]) if places else None

    def at(self, chunk: int, row: int) -> str | None:
        """The picture in that row."""
        rows = self.ask("SELECT id FROM pictures WHERE chunk = ? AND row = ?", chunk, row, types=(str,))
        return rows[0][0] if rows else None

    def places(self) -> list[Place]:
        """Every picture, in the order of the chunks and their rows."""
        question = "SELECT id, chunk, row FROM pictures ORDER BY chunk, row"
        return [Place(*row) for row in self.ask(question, types=PLACE_TYPES)]

    def ids(self) -> set[str]:
        return {name for (name,) in self.ask("SELECT id FROM pictures", types=(str,))}

    def _unusable(self, error: sqlite3.DatabaseError) -> InputError:
        reason = printable(error)[:80]  # SQLite quotes what it cannot decode
        return InputError(f"{self.path} is missing, locked or damaged ({reason}); if damaged, index the pictures again")


def enter(db: sqlite3.Connection, files: Iterable[File]) -> None:
    """Record the state of files; earlier records of the same paths are replaced."""
    rows = [(os.fsencode(file.path), *file[1:]) for file in files]
    db.executemany("INSERT OR REPLACE INTO files (path, id, problem, bytes, modified) VALUES (?, ?, ?, ?, ?)", rows)


def forget(db: sqlite3.Connection, paths: Iterable[Path]) -> None:
    db.executemany("DELETE FROM files WHERE path = ?", [(os.fsencode(path),) for path in paths])


def path_of(stored: bytes) -> Path:
    return Path(os.fsdecode(stored))


def _prefix(folder: Path) -> tuple[bytes, int, bytes]:
    name = os.fsencode(folder)
    start = name.rstrip(b"/") + b"/"
    return name, len(start), start
