"""How long a search takes, part by part, as the gallery grows, and how much longer without the vector.

Galleries are indexes on disk, written and read by the code that people use; their vectors and tokens are random, which
changes no time. Queries are real and so is the model that reads them.

encode      the query's words into vector and tokens
search      the nearest vectors, exact
rerank      the alignment score of the K nearest, their tokens read from the memory map
exhaustive  the alignment score of every picture, from the memory map; in_memory: of float32 tokens held in memory,
            which is the best that can be said for it
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
from tqdm import tqdm

from mjp.aladin.index.intake import Encoder
from mjp.aladin.index.store import LARGEST, Index, IndexFacts, open_index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.alignment import align
from mjp.aladin.search.two_stage import alignment_scores, by_alignment, by_vector

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
    """Milliseconds (p50, p95), bytes and ratios for every size."""
    grid, found = Encoder(model, 0.0).grid(), []
    for size in sizes:
        with TemporaryDirectory(prefix="mjp-aladin-bench-") as folder:
            index = random_index(Path(folder) / "index", model, size, grid, seed=seed)
            found.append(measure(index, model, repeats=repeats, rerank=rerank))
    return {
        **{"hash": model.hash, "gallery": "random vectors and tokens", "rerank": rerank},
        **{"threads": torch.get_num_threads(), "patches": grid[0] * grid[1], "queries": list(QUERIES), "sizes": found},
        "headline": [which_is_which(each) for each in found],
    }


def random_index(folder: Path, model: Aladin, size: int, grid: tuple[int, int], *, seed: int) -> Index:
    """An index of pictures that do not exist."""
    index = open_index(folder, IndexFacts(model.hash, "none", 0.0, grid))
    generator = torch.Generator().manual_seed(seed)
    patches, (width, narrow) = grid[0] * grid[1], (model.config.width, model.config.align_width)
    for start in tqdm(range(0, size, LARGEST), desc=f"{size} random pictures", leave=False, disable=None):
        count = min(LARGEST, size - start)
        vector = normalize(torch.randn(count, width, generator=generator), dim=-1)
        tokens = normalize(torch.randn(count, patches, narrow, generator=generator), dim=-1)
        everywhere = torch.ones(count, patches, dtype=torch.bool)
        index.add([f"{start + n:032x}" for n in range(count)], Codes(vector, tokens, everywhere, ~everywhere), [])
    return index


def measure(index: Index, model: Aladin, *, repeats: int, rerank: int) -> dict[str, Any]:
    read = [model.encode_texts([text]) for text in QUERIES]
    nearest = [by_vector(index, query, rerank) for query in read]
    everything = torch.arange(len(index))
    slow = max(1, min(repeats, 20_000 // len(index)))  # the exhaustive search of a large gallery takes seconds
    times = {
        "encode": _timed(lambda n: model.encode_texts([QUERIES[n]]), repeats),
        "search": _timed(lambda n: by_vector(index, read[n], rerank), repeats),
        "rerank": _timed(lambda n: by_alignment(index, model, read[n], nearest[n]), repeats),
        "exhaustive": _timed(lambda n: alignment_scores(index, model, read[n], everything), slow),
    }
    if len(index) <= IN_MEMORY:
        held = Codes(*(tensor.to(model.log_scale.device) for tensor in index.codes(everything)))
        with torch.no_grad():
            times["exhaustive_in_memory"] = _timed(lambda n: _best_case(model, held, read[n]), slow)
    middle = {name: value["p50"] for name, value in times.items()}
    best = middle.get("exhaustive_in_memory", middle["exhaustive"])
    return {
        **{"pictures": len(index), "index_bytes": index.bytes(), "bytes_per_picture": index.bytes() / len(index)},
        "milliseconds": times,
        "ratios": {f"exhaustive_over_{name}": value for name, value in zip(RATIOS, _ratios(middle, best), strict=True)},
        "ratios_from_index": {
            f"exhaustive_over_{name}": value
            for name, value in zip(RATIOS, _ratios(middle, middle["exhaustive"]), strict=True)
        },
    }


def _best_case(model: Aladin, held: Codes, query: Codes) -> Tensor:
    """The alignment score of every picture, without making sure that tokens have length 1."""
    mode = model.config.alignment
    return align(held.tokens, held.valid, query.tokens, query.valid, mode=mode, unit=True)


def _ratios(middle: dict[str, float], best: float) -> tuple[float, float, float]:
    """`best` milliseconds of exhaustive alignment over the two ways that use vectors."""
    first, second = middle["encode"] + middle["search"], middle["encode"] + middle["search"] + middle["rerank"]
    return best / middle["search"], (middle["encode"] + best) / first, (middle["encode"] + best) / second


def which_is_which(size: dict[str, Any]) -> str:
    """Every ratio of one gallery size with what it is a ratio of."""
    times, ratios = {name: value["p50"] for name, value in size["milliseconds"].items()}, size["ratios"]
    held = "exhaustive_in_memory" in times
    slow = times["exhaustive_in_memory" if held else "exhaustive"]
    scoring, whole, both = (ratios[f"exhaustive_over_{name}"] for name in RATIOS)
    return (
        f"{size['pictures']:,} pictures. Scoring alone: search by vector takes {times['search']:.2f} ms, exhaustive "
        f"alignment with tokens {'in memory' if held else 'on disk'} {slow:,.1f} ms, {scoring:,.0f} times as long. End "
        f"to end, with the {times['encode']:.2f} ms that encoding the query takes either way: {whole:,.0f} times as "
        f"long as search by vector, {both:,.0f} times as long as the two stages." + (_from_index(size) if held else "")
    )


def _from_index(size: dict[str, Any]) -> str:
    scoring, whole, both = (size["ratios_from_index"][f"exhaustive_over_{name}"] for name in RATIOS)
    slow = size["milliseconds"]["exhaustive"]["p50"]
    return (
        f" Exhaustive alignment from the index, with tokens in half precision on disk, takes {slow:,.1f} ms: "
        f"{scoring:,.0f} times as long in scoring, {whole:,.0f} times end to end, {both:,.0f} times the two stages."
    )


def _timed(work: Callable[[int], object], repeats: int) -> dict[str, float]:
    """p50 and p95 over every query, each several times."""
    work(0)
    seen = []
    for _ in range(repeats):
        for number in range(len(QUERIES)):
            start = time.perf_counter()
            work(number)
            seen.append(1e3 * (time.perf_counter() - start))
    return {"p50": float(np.percentile(seen, 50)), "p95": float(np.percentile(seen, 95))}
