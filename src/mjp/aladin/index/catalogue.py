"""The catalogue of an index: which picture lies in which row of which chunk, and what every file was found to be.

One SQLite file. Whatever is done to an index counts when its transaction ends here, and not before: a kill leaves the
index as it was. Paths are kept as the bytes that the file system has, which need not be text.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from mjp.common.errors import InputError

SCHEMA = """
CREATE TABLE chunks (number INTEGER PRIMARY KEY AUTOINCREMENT, count INTEGER NOT NULL);
CREATE TABLE pictures (id TEXT PRIMARY KEY, chunk INTEGER NOT NULL, row INTEGER NOT NULL);
CREATE UNIQUE INDEX places ON pictures (chunk, row);
CREATE TABLE files (path BLOB PRIMARY KEY, id TEXT, problem TEXT, bytes INTEGER NOT NULL, modified INTEGER NOT NULL);
CREATE INDEX owners ON files (id);
"""


class File(NamedTuple):
    """A file as it was when it was looked at: a picture, why it could not be read, or neither: to be passed over."""

    path: Path
    id: str | None  # hash of the content; of a file that cannot be read any more, of the content that it had
    problem: str | None
    bytes: int
    modified: int  # nanoseconds


class Place(NamedTuple):
    """Where the codes of a picture are."""

    id: str
    chunk: int
    row: int


class Catalogue:
    """Questions to the SQLite file; every one opens it anew, so that threads need not share a connection."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        with self.transaction() as db:
            for statement in SCHEMA.strip().split(";\n"):
                db.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that happens inside, or nothing of it."""
        try:
            with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
                db.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten, not just forgotten
                db.execute("BEGIN IMMEDIATE")
                yield db
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path} cannot be used ({error}); if damaged, index the pictures anew") from error

    def ask(self, question: str, *values: object) -> list[tuple[object, ...]]:
        try:
            with closing(sqlite3.connect(self.path.resolve().as_uri() + "?mode=ro", uri=True, timeout=30)) as db:
                return db.execute(question, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path} is missing or damaged ({error}): index the pictures anew") from error

    def chunks(self) -> list[tuple[int, int]]:
        """(number, rows) of every chunk."""
        return [(int(str(n)), int(str(c))) for n, c in self.ask("SELECT number, count FROM chunks ORDER BY number")]

    def files(self, where: str = "1", *values: object) -> list[File]:
        rows = self.ask(f"SELECT path, id, problem, bytes, modified FROM files WHERE {where} ORDER BY path", *values)
        return [File(path_of(path), *rest) for path, *rest in rows]  # type: ignore[arg-type]

    def below(self, folder: Path) -> list[File]:
        """The files under a folder, or the file of that path."""
        return self.files("path = ? OR substr(path, 1, ?) = ?", *_prefix(folder))

    def paths(self, picture: str) -> list[Path]:
        return [file.path for file in self.files("id = ?", picture)]

    def place(self, picture: str) -> Place | None:
        found = self.ask("SELECT id, chunk, row FROM pictures WHERE id = ?", picture)
        return Place(*found[0]) if found else None  # type: ignore[arg-type]

    def at(self, chunk: int, row: int) -> str | None:
        """The picture in that row."""
        found = self.ask("SELECT id FROM pictures WHERE chunk = ? AND row = ?", chunk, row)
        return str(found[0][0]) if found else None

    def known(self) -> set[str]:
        return {str(name) for (name,) in self.ask("SELECT id FROM pictures")}


def enter(db: sqlite3.Connection, files: Iterable[File]) -> None:
    """Write down what files are; what was said about the same paths before is replaced."""
    rows = [(os.fsencode(file.path), *file[1:]) for file in files]
    db.executemany("INSERT OR REPLACE INTO files (path, id, problem, bytes, modified) VALUES (?, ?, ?, ?, ?)", rows)


def forget(db: sqlite3.Connection, paths: Iterable[Path]) -> None:
    db.executemany("DELETE FROM files WHERE path = ?", [(os.fsencode(path),) for path in paths])


def path_of(stored: object) -> Path:
    return Path(os.fsdecode(stored))  # type: ignore[arg-type]


def _prefix(folder: Path) -> tuple[bytes, int, bytes]:
    name = os.fsencode(folder)
    start = name.rstrip(b"/") + b"/"
    return name, len(start), start
