"""Small versions of pictures for pages that many requests ask for at once."""

from collections import OrderedDict
from pathlib import Path
from threading import BoundedSemaphore, Lock

from PIL import Image, ImageOps

from mjp.pictures.decode import UnreadablePicture, open_rgb

Key = tuple[Path, int, int, int]  # path, time of change, bytes, side


class Thumbnails:
    """Thumbnails of files, the last `entries` remembered; at most `decoders` files are decoded at the same time.

    Safe for threads. What is returned is shared: copy it before drawing on it.
    """

    def __init__(self, *, entries: int = 256, decoders: int = 2, max_pixels: int | None = None) -> None:
        self.entries = entries
        self.max_pixels = max_pixels
        self.decoding = BoundedSemaphore(decoders)
        self.queues = [Lock() for _ in range(64)]
        self.lock = Lock()
        self.cache: OrderedDict[Key, Image.Image] = OrderedDict()

    def get(self, paths: list[Path], side: int) -> Image.Image | None:
        """The picture at the first path that can be read, its longer side `side` pixels; None if there is none."""
        for path in paths:
            try:
                return self._thumbnail(path, side)
            except (OSError, UnreadablePicture):  # gone or changed since it was indexed
                continue
        return None

    def _thumbnail(self, path: Path, side: int) -> Image.Image:
        state = path.stat()
        key = (path, state.st_mtime_ns, state.st_size, side)
        with self.queues[hash(key) % len(self.queues)]:  # others who ask for the same file wait for its thumbnail
            picture = self._remembered(key)
            if picture is None:
                with self.decoding:
                    picture = thumbnail(path, side, max_pixels=self.max_pixels)
                self._remember(key, picture)
        return picture

    def _remembered(self, key: Key) -> Image.Image | None:
        with self.lock:
            if key in self.cache:
                self.cache.move_to_end(key)
            return self.cache.get(key)

    def _remember(self, key: Key, picture: Image.Image) -> None:
        with self.lock:
            self.cache[key] = picture
            while len(self.cache) > self.entries:
                self.cache.popitem(last=False)


def thumbnail(path: Path, side: int, *, max_pixels: int | None = None) -> Image.Image:
    """A picture file with its longer side `side` pixels."""
    picture = open_rgb(path, max_pixels=max_pixels, at_least=side)
    return ImageOps.contain(picture, (side, side), Image.Resampling.LANCZOS)
