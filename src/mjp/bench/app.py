"""How quickly the page of `mjp app` answers, through its own server, in seconds that a person waits.

slider_ms              the picture of a jigsaw and what the model says about it, DeiT-Ti at 224 px, median over γ
slider_busy_ms         the same while attacks run
first_attack_seconds   from the question to the first reconstruction, shipped model
"""

import json
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import Request, urlopen

import timm
import torch

from mjp.app.serve import serving
from mjp.bench.timing import seconds
from mjp.method.model import MJP

REPEATS = 20
LARGE = "deit_tiny_patch16_224"
SMALL = "mini-cifar10-mjp"


def measure(repeats: int, _: int) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        large = str(Path(folder) / LARGE)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            MJP(timm.create_model(LARGE), "paper").save_pretrained(large)
        with _page(large) as home:
            idle = _slider(home, repeats)
            job = _post(f"{home}/api/leak", {"defences": ["mjp:0.27"]})["job"]
            busy = _slider(home, repeats)
            urlopen(Request(f"{home}/api/jobs/{job}", method="DELETE")).close()
    with _page(SMALL) as home:
        first = [_first_attack(home, seed) for seed in range(4)][1:]  # the process warms up with the first
    return {
        **{"slider_ms": round(idle, 1), "slider_busy_ms": round(busy, 1)},
        **{"first_attack_seconds": round(statistics.median(first), 2), "repeats": repeats},
    }


def lines(figures: dict[str, Any]) -> list[str]:
    return [
        f"a jigsaw of 224 px: {figures['slider_ms']:.0f} ms, {figures['slider_busy_ms']:.0f} ms beside attacks",
        f"the first attack on the shipped model: {figures['first_attack_seconds']:.2f} s",
    ]


@contextmanager
def _page(model: str) -> Iterator[str]:
    settings: dict[str, Any] = {"index": None, "results": (), "host": "127.0.0.1", "port": 0, "token": None}
    with serving([model], **settings) as (server, address):
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield address.rstrip("/")
        finally:
            server.stop()
            thread.join()


def _slider(home: str, repeats: int) -> float:
    """Milliseconds until both answers to a move of the slider are there; γ is new every time."""
    with ThreadPoolExecutor(2) as pool:

        def move(turn: int) -> None:
            link = f"ratio={(turn + 1) / (repeats + 2):.4f}"
            list(pool.map(_get, (f"{home}/jigsaw.jpg?{link}", f"{home}/api/jigsaw?{link}")))

        times = [seconds(lambda turn=turn: move(turn)) for turn in range(repeats + 1)]  # type: ignore[misc]
    return 1e3 * statistics.median(times[1:])


def _first_attack(home: str, seed: int) -> float:
    began = time.perf_counter()
    job = _post(f"{home}/api/leak", {"defences": ["none"], "seed": seed})["job"]
    while json.loads(_get(f"{home}/api/jobs/{job}"))["done"] < 1:
        time.sleep(0.02)
    waited = time.perf_counter() - began
    while json.loads(_get(f"{home}/api/jobs/{job}"))["state"] == "running":
        time.sleep(0.1)
    return waited


def _get(address: str) -> bytes:
    with urlopen(address) as answer:
        content: bytes = answer.read()
    return content


def _post(address: str, content: Any) -> Any:
    with urlopen(Request(address, json.dumps(content).encode())) as answer:
        return json.load(answer)
