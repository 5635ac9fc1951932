"""The latency of a search, part by part, over gallery sizes, and the ratio to a search without vectors.

Galleries are indexes on disk, written and read by the code that users run; their vectors and tokens are random, which
does not affect the time. Queries are real, and so is the model that encodes them.

encode      the query into vector and tokens
search      the nearest vectors, exact
rerank      the alignment score of the K nearest, their tokens read from the memory map
exhaustive  the alignment score of every picture, from the memory map; in_memory: of float32 tokens in memory, its
            best case
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from mjp.aladin.index.chunks import MAX_ROWS
from mjp.aladin.index.config import IndexConfig
from mjp.aladin.index.encode import PictureEncoder
from mjp.aladin.index.store import Index, open_or_create
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.alignment import align
from mjp.aladin.model.codes import Codes
from mjp.aladin.search.two_stage import alignment_scores, by_alignment, by_vector
from mjp.common.errors import InputError
from mjp.common.progress import track
from mjp.common.validate import whole

QUERIES = (
    *("dog", "two children on a swing", "a brown dog runs along the beach", "a man in a red jacket climbs a rock"),
    *("people wait at a bus stop in the rain", "a girl in a blue dress jumps over a puddle next to a parked bicycle"),
    *("a football player in white kicks the ball while another one in green tries to stop him near the goal", "snow"),
)
RATIOS = ("vector_scoring", "vector_end_to_end", "two_stage_end_to_end")  # medians, exhaustive alignment over each
IN_MEMORY = 10_000  # pictures whose tokens are also tried as float32 in memory: 250 MB at 49 tokens of width 128


def measure_latency(
    model: Aladin, sizes: Sequence[int], *, repeats: int = 10, rerank: int, seed: int = 0
) -> dict[str, Any]:
    """Milliseconds (p50, p95), bytes and ratios for every gallery size."""
    whole("--repeats", repeats, least=1)
    whole("--rerank", rerank, least=1)
    if not sizes:
        raise InputError("--sizes needs at least one number of pictures")
    for size in sizes:
        whole("--sizes", size, least=1)
    grid = PictureEncoder(model, 0.0).grid()
    measured = []
    for size in sizes:
        with TemporaryDirectory(prefix="mjp-aladin-bench-") as folder:
            index = random_index(Path(folder) / "index", model, size, grid, seed=seed)
            measured.append(measure(index, model, repeats=repeats, rerank=rerank))
    return {
        "hash": model.hash,
        "gallery": "random vectors and tokens",
        "rerank": rerank,
        "threads": torch.get_num_threads(),
        "patches": grid[0] * grid[1],
        "queries": list(QUERIES),
        "sizes": measured,
        "headline": [ratio_sentence(size) for size in measured],
    }


def random_index(folder: Path, model: Aladin, size: int, grid: tuple[int, int], *, seed: int) -> Index:
    """An index of random codes."""
    index = open_or_create(folder, IndexConfig(model.hash, "none", 0.0, grid))
    generator = torch.Generator().manual_seed(seed)
    patches = grid[0] * grid[1]
    for start in track(range(0, size, MAX_ROWS), f"{size} random pictures"):
        count = min(MAX_ROWS, size - start)
        vector = normalize(torch.randn(count, model.code_widths[0], generator=generator), dim=-1)
        tokens = normalize(torch.randn(count, patches, model.code_widths[1], generator=generator), dim=-1)
        valid = torch.ones(count, patches, dtype=torch.bool)
        index.add([f"{start + n:032x}" for n in range(count)], Codes(vector, tokens, valid, ~valid), [])
    return index


def measure(index: Index, model: Aladin, *, repeats: int, rerank: int) -> dict[str, Any]:
    queries = [model.encode_texts([text]) for text in QUERIES]
    nearest = [by_vector(index, query, rerank) for query in queries]
    rows = torch.arange(len(index))
    slow = max(1, min(repeats, 20_000 // len(index)))  # the exhaustive search of a large gallery takes seconds
    times = {
        "encode": _timed(lambda n: model.encode_texts([QUERIES[n]]), repeats),
        "search": _timed(lambda n: by_vector(index, queries[n], rerank), repeats),
        "rerank": _timed(lambda n: by_alignment(index, model, queries[n], nearest[n]), repeats),
        "exhaustive": _timed(lambda n: alignment_scores(index, model, queries[n], rows), slow),
    }
    if len(index) <= IN_MEMORY:
        in_memory = Codes(*(tensor.to(model.log_scale.device) for tensor in index.codes(rows)))
        with torch.no_grad():
            times["exhaustive_in_memory"] = _timed(lambda n: _best_case(model, in_memory, queries[n]), slow)
    medians = {name: value["p50"] for name, value in times.items()}
    best = medians.get("exhaustive_in_memory", medians["exhaustive"])
    return {
        "pictures": len(index),
        "index_bytes": index.bytes(),
        "bytes_per_picture": index.bytes() / len(index),
        "milliseconds": times,
        "ratios": _ratios(medians, best),
        "ratios_from_index": _ratios(medians, medians["exhaustive"]),
    }


def _best_case(model: Aladin, pictures: Codes, query: Codes) -> Tensor:
    """The alignment score of every picture, without normalising the tokens again."""
    mode = model.config.alignment
    return align(pictures.tokens, pictures.valid, query.tokens, query.valid, mode=mode, unit=True)


def _ratios(medians: dict[str, float], exhaustive: float) -> dict[str, float]:
    """Milliseconds of exhaustive alignment over the ways that use vectors."""
    encode, search = medians["encode"], medians["search"]
    values = (
        exhaustive / search,
        (encode + exhaustive) / (encode + search),
        (encode + exhaustive) / (encode + search + medians["rerank"]),
    )
    return {f"exhaustive_over_{name}": value for name, value in zip(RATIOS, values, strict=True)}


def ratio_sentence(size: dict[str, Any]) -> str:
    """Every ratio of one gallery size, and what it is a ratio of."""
    times = {name: value["p50"] for name, value in size["milliseconds"].items()}
    in_memory = "exhaustive_in_memory" in times
    slow = times["exhaustive_in_memory" if in_memory else "exhaustive"]
    scoring, end_to_end, two_stage = (size["ratios"][f"exhaustive_over_{name}"] for name in RATIOS)
    return (
        f"{size['pictures']:,} pictures. Scoring alone: search by vector takes {times['search']:.2f} ms, exhaustive "
        f"alignment with tokens {'in memory' if in_memory else 'on disk'} {slow:,.1f} ms, {scoring:,.0f} times as "
        f"long. End to end, with the {times['encode']:.2f} ms that encoding the query takes either way: "
        f"{end_to_end:,.0f} times as long as search by vector, {two_stage:,.0f} times as long as the two stages."
        + (_from_index(size) if in_memory else "")
    )


def _from_index(size: dict[str, Any]) -> str:
    scoring, end_to_end, two_stage = (size["ratios_from_index"][f"exhaustive_over_{name}"] for name in RATIOS)
    slow = size["milliseconds"]["exhaustive"]["p50"]
    return (
        f" Exhaustive alignment from the index, with tokens in half precision on disk, takes {slow:,.1f} ms: "
        f"{scoring:,.0f} times as long in scoring, {end_to_end:,.0f} times end to end, {two_stage:,.0f} times the two "
        "stages."
    )


def _timed(work: Callable[[int], object], repeats: int) -> dict[str, float]:
    """p50 and p95 over every query, repeated."""
    work(0)
    times = []
    for _ in range(repeats):
        for number in range(len(QUERIES)):
            start = time.perf_counter()
            work(number)
            times.append(1e3 * (time.perf_counter() - start))
    return {"p50": float(np.percentile(times, 50)), "p95": float(np.percentile(times, 95))}
