"""What a page of a large index costs in processor time, as ratios to what nobody can do without.

    page        a query page, from the request to the last byte of its HTML, in one warm process
    encode      the query into vector and tokens
    product     one contiguous matrix of all vectors times the query's: the least that an exact search computes
    name        the paths and dates of 20 matches
    thumbnails  24 thumbnails that were made before, each its own request
    jpeg        a photograph of 12 megapixels as indexing reads and encodes it; jpeg_full: decoded in full

All are measured in turn, over and over, so that a machine that slows down slows all of them. Times are processor time,
all threads together. Vectors are random and tokens repeat, which does not affect the time; queries, model, catalogue,
templates and picture files are real.
"""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from PIL import Image
from starlette.types import ASGIApp, Message
from torch.nn.functional import normalize

from mjp.aladin.evaluate.latency import QUERIES
from mjp.aladin.index.catalogue import File
from mjp.aladin.index.chunks import MAX_ROWS
from mjp.aladin.index.config import IndexConfig
from mjp.aladin.index.encode import PictureEncoder
from mjp.aladin.index.reading import PictureReader
from mjp.aladin.index.scan import content_hash
from mjp.aladin.index.store import Index, open_or_create
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.search.searcher import PictureSearch
from mjp.aladin.search.web.app import make_app
from mjp.aladin.search.web.parameters import Defaults
from mjp.common.progress import track
from mjp.common.validate import whole
from mjp.common.web.guard import Guard
from mjp.pictures.landscape import landscape
from mjp.pictures.tensors import to_image
from mjp.pictures.thumbnails import Thumbnails

NAMED, SHOWN = 20, 24
PHOTOGRAPH = (4000, 3000)


def measure_serving(model: Aladin, size: int, *, repeats: int, seed: int) -> dict[str, Any]:
    """Milliseconds of processor time (medians) and their ratios, at an index of so many random pictures."""
    whole("--pages", size, least=SHOWN)
    with TemporaryDirectory(prefix="mjp-aladin-serving-") as folder, closing(asyncio.new_event_loop()) as loop:
        index, vectors = _index(Path(folder), model, size, seed)
        times = _in_turn(_tasks(Path(folder), index, vectors, model, loop), repeats)
        loop.run_until_complete(loop.shutdown_default_executor())
    medians = {name: float(np.median(values)) for name, values in times.items()}
    least = medians["encode"] + medians["product"]
    return {
        "pictures": size,
        "threads": torch.get_num_threads(),
        "milliseconds": medians,
        "ratios": {
            "page_over_encode_and_product": medians["page"] / least,
            "name_over_encode_and_product": medians["name"] / least,
            "thumbnails_over_encode_and_product": medians["thumbnails"] / least,
            "jpeg_over_full_decoding": medians["jpeg"] / medians["jpeg_full"],
        },
    }


def serving_text(serving: dict[str, Any]) -> str:
    """One line per quantity."""
    times, ratios = serving["milliseconds"], serving["ratios"]
    return "\n".join(
        [
            f"{serving['pictures']:,} pictures, milliseconds of processor time:",
            f"  query page            {times['page']:8.1f}  = {ratios['page_over_encode_and_product']:.2f} x "
            f"(encoding {times['encode']:.1f} + bare product {times['product']:.1f})",
            f"  naming {NAMED} matches     {times['name']:8.2f}",
            f"  {SHOWN} cached thumbnails  {times['thumbnails']:8.1f}",
            f"  12-megapixel JPEG     {times['jpeg']:8.1f}  = {ratios['jpeg_over_full_decoding']:.2f} x decoding it "
            f"in full ({times['jpeg_full']:.1f})",
        ]
    )


def _index(folder: Path, model: Aladin, size: int, seed: int) -> tuple[Index, torch.Tensor]:
    """An index of random vectors, and these as one matrix (N, D)."""
    encoder = PictureEncoder(model, 0.0)
    grid = encoder.grid()
    index = open_or_create(folder / "index", IndexConfig(model.hash, "none", 0.0, grid))
    generator = torch.Generator().manual_seed(seed)
    patches = grid[0] * grid[1]
    tokens = normalize(torch.randn(MAX_ROWS, patches, model.code_widths[1], generator=generator), dim=-1)
    valid = torch.ones(MAX_ROWS, patches, dtype=torch.bool)
    vectors = normalize(torch.randn(size, model.code_widths[0], generator=generator), dim=-1)
    for start in track(range(0, size, MAX_ROWS), f"{size} random pictures"):
        part = vectors[start : start + MAX_ROWS]
        count = len(part)
        names = [f"{start + n:032x}" for n in range(count)]
        files = [File(folder / "pictures" / n[-5:-2] / f"{n}.jpg", n, None, 1, 1) for n in names]
        index.add(names, Codes(part, tokens[:count], valid[:count], ~valid[:count]), files)
    return index, vectors


def _tasks(
    folder: Path, index: Index, vectors: torch.Tensor, model: Aladin, loop: asyncio.AbstractEventLoop
) -> dict[str, Callable[[int], object]]:
    searcher = PictureSearch(index.folder, model)
    app: ASGIApp = make_app(searcher, Thumbnails(), Defaults(SHOWN // 2, NAMED))
    app = Guard(app, names=frozenset({"localhost"}), port=80, token=None)
    photograph = folder / "photograph.jpg"
    _photograph().save(photograph, quality=92)
    shown = _real_files(folder, searcher)
    rows = torch.arange(0, len(index), max(1, len(index) // NAMED))[:NAMED].tolist()
    queries = [model.encode_texts([text]).vector[0].cpu() for text in QUERIES]
    sides = {"jpeg": 2 * max(model.vision.size), "jpeg_full": None}

    def get(address: str) -> bytes:
        return loop.run_until_complete(_get(app, address))

    def read(side: int | None) -> object:
        image, _ = PictureReader(model.vision.prepare, None, side)(photograph)
        assert image is not None
        return PictureEncoder(model, 0.0)(image.unsqueeze(0), [content_hash(photograph)])

    return {
        "encode": lambda n: model.encode_texts([QUERIES[n]]),
        "product": lambda n: vectors @ queries[n],
        "page": lambda n: get(f"/?q={quote(QUERIES[n])}"),
        "name": lambda n: index.entries(rows),
        "thumbnails": lambda n: [get(f"/thumb/{name}") for name in shown[n]],
        **{name: lambda n, side=side: read(side) for name, side in sides.items()},  # type: ignore[misc]
    }


def _real_files(folder: Path, searcher: PictureSearch) -> list[list[str]]:
    """The ids of SHOWN matches of every query, whose files are then there."""
    small = folder / "small.jpg"
    to_image(landscape(640)[0]).save(small)
    shown = []
    for query in QUERIES:
        matches = searcher.search(query, k=SHOWN, rerank=0)
        for match in matches:
            match.paths[0].parent.mkdir(parents=True, exist_ok=True)
            if not match.paths[0].exists():
                os.link(small, match.paths[0])
        shown.append([match.id for match in matches])
    return shown


def _photograph() -> Image.Image:
    """A landscape with the grain of a camera, without which a JPEG decodes too quickly."""
    pixels = np.array(to_image(landscape(640)[0]).resize(PHOTOGRAPH, Image.Resampling.BICUBIC), dtype=np.int16)
    grain = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(0)).mul(6).to(torch.int16).numpy()
    return Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8))


async def _get(app: ASGIApp, address: str) -> bytes:
    """The body of an answer, asked without a network."""
    path, _, query = address.partition("?")
    scope = {
        **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http"},
        **{"path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": ""},
        **{"headers": [(b"host", b"localhost")], "server": ("localhost", 80), "client": ("127.0.0.1", 1)},
    }
    body = bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        assert message.get("status", 200) == 200
        body.extend(message.get("body", b""))

    await app(scope, receive, send)
    return bytes(body)


def _in_turn(tasks: dict[str, Callable[[int], object]], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of every task, one after the other for every query, repeated; the first round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(repeats + 1):
        for number in range(len(QUERIES)):
            for name, work in tasks.items():
                start = time.process_time()
                work(number)
                if turn:
                    times[name].append(1e3 * (time.process_time() - start))
    return times
