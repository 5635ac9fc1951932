"""A folder of thumbnails of bounded size: what was not asked for the longest goes first."""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from threading import Lock

NAME = re.compile(r"[0-9a-f]{32}\.jpg")


class ThumbnailFiles:
    """Thumbnails by key, for this user alone. A folder that cannot be written is a cache that forgets."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.lock = Lock()
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.bytes = sum(size for _, size, _ in self._entries())

    def read(self, key: str) -> bytes | None:
        path = self._path(key)
        with suppress(OSError):
            content = path.read_bytes()
            os.utime(path)  # the newest is dropped last
            return content
        return None

    def write(self, key: str, content: bytes) -> None:
        """Not brought to the disk at once, as write_atomically does: a lost thumbnail is made again."""
        path = self._path(key)
        temporary = path.with_suffix(f".{secrets.token_hex(4)}.tmp")
        with suppress(OSError):
            temporary.write_bytes(content)
            temporary.replace(path)
            with self.lock:
                self.bytes += len(content)
                if self.bytes > self.max_bytes:
                    self._shrink()

    def _shrink(self) -> None:
        """Drop the oldest until a fifth is free."""
        entries = sorted(self._entries())
        self.bytes = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if self.bytes <= 0.8 * self.max_bytes:
                break
            path.unlink(missing_ok=True)
            self.bytes -= size

    def _entries(self) -> list[tuple[int, int, Path]]:
        """(time of use, bytes, path) of everything here; what a killed writer left counts too."""
        entries = []
        with suppress(OSError):
            for item in os.scandir(self.folder):
                if NAME.fullmatch(item.name) or item.name.endswith(".tmp"):
                    with suppress(OSError):
                        stat = item.stat()
                        entries.append((stat.st_mtime_ns, stat.st_size, Path(item.path)))
        return entries

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.jpg"
