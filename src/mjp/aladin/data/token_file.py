"""Tokens on disk: computed once, streamed from there in training, resumable after a kill.

    FOLDER/
      key.json      what the tokens were computed from; another key is another folder
      tokens.f16    rows of different lengths one after the other, each (1 + N, D): class token first
      lengths.i32   1 + N of every row; 0 stands for a picture that could not be read
                    (tried again when a file of the data has changed, since the key changes with it)

Both files only grow. Lengths are written after their tokens, so after a kill everything behind the last complete row is
cut off and the work resumes there. Runs may share a folder: one fills it, under a lock, the others wait and then read
it. Reading goes through a memory map: a training run never holds the features in memory.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mjp.aladin.model.text import padded
from mjp.common.files import write_atomically
from mjp.common.progress import Progress, say

Rows = list[Tensor]  # (1 + N, D) each


class TokenFile:
    """An append-only file of token rows."""

    def __init__(self, folder: Path, width: int) -> None:
        self.folder = folder
        self.width = width
        self.tokens = folder / "tokens.f16"
        self.lengths = folder / "lengths.i32"
        for file in (self.tokens, self.lengths):
            file.touch()

    def __len__(self) -> int:
        return self.lengths.stat().st_size // 4

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Lock out other writers, or wait for the one that holds the lock; it may leave nothing to do."""
        with open(self.folder / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"another process is filling {self.folder}: waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                self._cut()
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough: workers have it open too

    def append(self, rows: Rows) -> None:
        """Add rows while `filling`; a kill may leave only the first of them."""
        flat = torch.cat([row.half().cpu() for row in rows]).numpy()
        _append(self.tokens, flat.tobytes())
        _append(self.lengths, np.array([len(row) for row in rows], np.int32).tobytes())
        self.__dict__.pop("_mapped", None)

    def read(self, numbers: Iterable[int]) -> tuple[Tensor, Tensor, Tensor]:
        """cls (B, D), tokens (B, L, D) padded to the longest, valid (B, L)."""
        offsets, mapped = self._mapped
        rows = [torch.from_numpy(mapped[offsets[n] : offsets[n + 1]].astype(np.float32)) for n in numbers]
        tokens, valid = padded(rows)
        return tokens[:, 0], tokens[:, 1:], valid[:, 1:]

    def unreadable(self) -> list[int]:
        return np.flatnonzero(np.fromfile(self.lengths, np.int32) == 0).tolist()

    @cached_property
    def _mapped(self) -> tuple[Any, Any]:
        offsets = np.concatenate([[0], np.fromfile(self.lengths, np.int32).cumsum(dtype=np.int64)])
        # only as far as the lengths reach: another process may be appending
        return offsets, np.memmap(self.tokens, np.float16, "r", shape=(int(offsets[-1]), self.width))

    def _cut(self) -> None:
        """Remove what a kill left incomplete."""
        ends = np.fromfile(self.lengths, np.int32).cumsum(dtype=np.int64)
        stored = self.tokens.stat().st_size // (2 * self.width)
        complete = int((ends <= stored).sum())
        os.truncate(self.lengths, 4 * complete)
        os.truncate(self.tokens, 2 * self.width * int(ends[complete - 1]) if complete else 0)


def token_file(cache: Path, key: dict[str, Any], width: int) -> TokenFile:
    """The file for what `key` describes, in its own folder under `cache`."""
    text = json.dumps({**key, "width": width}, sort_keys=True)
    folder = cache / f"{key['kind']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "key.json", lambda path: path.write_text(text + "\n"))
    return TokenFile(folder, width)


def fill(file: TokenFile, count: int, compute: Callable[[int, int], Rows], batch: int, what: str) -> None:
    """Append the missing ones of `count` rows, batch by batch; `compute(start, stop)` returns them."""
    with file.filling(), Progress(count, what, initial=len(file), unit="row") as progress:
        for start in range(len(file), count, batch):
            stop = min(start + batch, count)
            file.append(compute(start, stop))
            progress.advance(stop - start)


def _append(path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
