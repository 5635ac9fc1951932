"""The page with the two shipped models for tests, asked without a network or through a real server."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from mjp.app.serve import serving
from mjp.common.web.server import Server

SETTINGS: dict[str, Any] = {"index": None, "results": (), "host": "127.0.0.1", "port": 0, "token": None}
MODELS = ("mini-cifar10-plain", "mini-cifar10-mjp")


def photo(side: int = 96, seed: int = 0, kind: str = "PNG") -> bytes:
    """A smooth random picture as a file."""
    small = np.random.default_rng(seed).integers(0, 255, (6, 6, 3), np.uint8)
    buffer = BytesIO()
    Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC).save(buffer, kind)
    return buffer.getvalue()


@contextmanager
def running(models: tuple[str, ...] = MODELS, **settings: Any) -> Iterator[tuple[Server, str]]:
    """A real server in a thread, and its address."""
    with serving(models, **SETTINGS | settings) as (server, address):
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server, address.rstrip("/")
        finally:
            server.stop()
            thread.join()
