"""Small versions of pictures for pages that many requests ask for at once, remembered in memory and on disk."""

from collections import OrderedDict
from hashlib import sha256
from io import BytesIO
from os import fsencode
from pathlib import Path
from threading import BoundedSemaphore, Lock

from PIL import Image, ImageOps

from mjp.pictures.decode import UnreadablePicture, open_rgb
from mjp.pictures.thumbnail_files import ThumbnailFiles

QUALITY = 88
MAX_ZOOM = 8
IN_MEMORY = 32_000_000  # bytes


class Thumbnails:
    """Thumbnails of files as JPEG; at most `decoders` files are decoded at the same time. Safe for threads."""

    def __init__(
        self,
        files: ThumbnailFiles | None = None,
        *,
        memory: int = IN_MEMORY,
        decoders: int = 2,
        max_pixels: int | None = None,
    ) -> None:
        self.files = files
        self.memory = memory
        self.max_pixels = max_pixels
        self.decoding = BoundedSemaphore(decoders)
        self.queues = [Lock() for _ in range(64)]
        self.lock = Lock()
        self.cache: OrderedDict[str, bytes] = OrderedDict()
        self.bytes = 0

    def jpeg(self, paths: list[Path], side: int) -> bytes | None:
        """The picture at the first path that can be read, its longer side `side` pixels; None if there is none."""
        for path in paths:
            try:
                return self._jpeg(path, side)
            except (OSError, UnreadablePicture):  # gone or changed since it was indexed
                continue
        return None

    def _jpeg(self, path: Path, side: int) -> bytes:
        state = path.stat()
        text = b"%s\0%d\0%d\0%d" % (fsencode(path), state.st_mtime_ns, state.st_size, side)
        key = sha256(text).hexdigest()[:32]
        content = self._remembered(key)
        if content is not None:
            return content
        with self.queues[hash(key) % len(self.queues)]:  # others who ask for the same file wait for its thumbnail
            content = self._remembered(key) or (None if self.files is None else self.files.read(key))
            if not content:
                with self.decoding:
                    content = as_jpeg(thumbnail(path, side, max_pixels=self.max_pixels))
                if self.files is not None:
                    self.files.write(key, content)
            self._remember(key, content)
        return content

    def _remembered(self, key: str) -> bytes | None:
        with self.lock:
            if key in self.cache:
                self.cache.move_to_end(key)
            return self.cache.get(key)

    def _remember(self, key: str, content: bytes) -> None:
        with self.lock:
            self.bytes += len(content) - len(self.cache.get(key, b""))
            self.cache[key] = content
            while self.bytes > self.memory and len(self.cache) > 1:
                self.bytes -= len(self.cache.popitem(last=False)[1])


def thumbnail(path: Path, side: int, *, max_pixels: int | None = None) -> Image.Image:
    """A picture file with its longer side `side` pixels; smaller pictures are enlarged, at most MAX_ZOOM times."""
    picture = open_rgb(path, max_pixels=max_pixels, at_least=side)
    side = min(side, MAX_ZOOM * max(picture.size))
    return ImageOps.contain(picture, (side, side), Image.Resampling.LANCZOS)


def as_jpeg(picture: Image.Image) -> bytes:
    """Without the marks of the file that it came from."""
    buffer = BytesIO()
    picture.save(buffer, "JPEG", quality=QUALITY, exif=b"")
    return buffer.getvalue()
