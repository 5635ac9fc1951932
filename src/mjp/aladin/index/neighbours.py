"""The nearest vectors: exact by default, approximate with faiss for millions of pictures. One result type.

exact   every vector is compared, chunk by chunk, straight from the memory map
ivf     faiss, inverted lists: √N·4 clusters, of which an eighth is searched, and more for a large k
hnsw    faiss, a graph of neighbours

An approximate search may return fewer than k vectors: it is then repeated exactly. A faiss structure is built once and
stored in the index; when the index changes it is built again. If the folder cannot be written it stays in memory.
"""

import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from mjp.aladin.index.store import Index
from mjp.common.errors import InputError
from mjp.common.files import write_atomically

Engine = Literal["exact", "ivf", "hnsw"]
BLOCK = 512  # rows whose maximum is looked at first
_unwritten: dict[Path, Any] = {}  # the last structure that could not be written, by the path it would have


class Neighbours(NamedTuple):
    """Rows of the index, the nearest first."""

    scores: Tensor  # (K,) cosines
    rows: Tensor  # (K,) int64


def nearest(
    index: Index, vector: Tensor, k: int, engine: Engine = "exact", *, passing: Tensor | None = None
) -> Neighbours:
    """The k pictures whose vectors are nearest to `vector` (D,); all of them if there are fewer.

    `passing` (N,): only these rows are candidates, which are then compared exactly whatever the engine.
    """
    query = vector.float().cpu()
    if engine != "exact" and passing is None and len(index):
        approximate = _faiss(index, query, min(k, len(index)), engine)
        if approximate is not None:
            return _ordered(*approximate)
    return best_rows(cosines(index, query), k, passing)


def cosines(index: Index, query: Tensor) -> Tensor:
    """(N,) of every picture with a vector (D,)."""
    if not len(index):
        raise InputError(f"{index.folder} contains no pictures: mjp aladin index adds some")
    pieces = [piece @ query.float().cpu() for piece in index.vectors()]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def best_rows(scores: Tensor, k: int, passing: Tensor | None = None) -> Neighbours:
    """The k best rows by their scores (N,), the best first; with `passing` (N,) of those alone."""
    if passing is not None:
        scores = scores.masked_fill(~passing, -torch.inf)
        k = min(k, int(passing.sum()))
    k = min(k, len(scores))
    rows = torch.arange(len(scores)) if len(scores) <= k * BLOCK else _candidates(scores, k)
    best = scores[rows].topk(k)
    return _ordered(best.values, rows[best.indices])


def _candidates(scores: Tensor, k: int) -> Tensor:
    """Rows among which the k best are: those of the k blocks with the largest maxima. Much quicker than topk of all."""
    whole = len(scores) // BLOCK
    blocks = scores[: whole * BLOCK].view(whole, BLOCK)
    best = blocks.amax(1).topk(min(k, whole)).indices.unsqueeze(1)  # (k, 1)
    rest = torch.arange(whole * BLOCK, len(scores))
    return torch.cat([(best * BLOCK + torch.arange(BLOCK)).flatten(), rest])


def _faiss(index: Index, query: Tensor, k: int, engine: Engine) -> tuple[Tensor, Tensor] | None:
    """None if faiss returns fewer than k."""
    faiss = _library(engine)
    structure = _structure(faiss, index, engine)
    effort = _effort(faiss, structure, k, len(index), engine)
    scores, rows = structure.search(query.unsqueeze(0).numpy(), k, params=effort)
    return None if rows.min() < 0 else (torch.from_numpy(scores[0]), torch.from_numpy(rows[0]))


def _library(engine: Engine) -> Any:
    try:
        import faiss
    except ImportError as error:
        raise InputError(f"--engine {engine} needs faiss: pip install 'mjp[faiss]', or omit the option") from error
    return faiss


def _effort(faiss: Any, structure: Any, k: int, count: int, engine: Engine) -> Any:
    """How far faiss looks: well beyond k, or it silently returns fewer."""
    if engine == "hnsw":
        return faiss.SearchParametersHNSW(efSearch=max(64, 2 * k))
    lists = structure.nlist
    return faiss.SearchParametersIVF(nprobe=min(lists, max(1, lists // 8, -(-4 * k * lists // count))))


def _structure(faiss: Any, index: Index, engine: Engine) -> Any:
    """The faiss index, from its file if that is up to date."""
    path = index.folder / f"{engine}-{index.stamp}.faiss"
    if path in _unwritten:
        return _unwritten[path]
    if not path.is_file():
        built = _build(faiss, index, engine)
        try:
            write_atomically(path, lambda temporary: faiss.write_index(built, str(temporary)))
        except OSError as error:
            print(f"the {engine} index cannot be stored and will be built again next time ({error})", file=sys.stderr)
            _unwritten.clear()
            return _unwritten.setdefault(path, built)
    return _read(faiss, path)


def _build(faiss: Any, index: Index, engine: Engine) -> Any:
    count, width = len(index), index.chunks[0].vector.shape[1]
    lists = max(1, min(round(4 * count**0.5), count // 39))  # faiss wants 39 vectors per cluster for training
    factories = {"ivf": f"IVF{lists},Flat", "hnsw": "HNSW32"}
    built = faiss.index_factory(width, factories[engine], faiss.METRIC_INNER_PRODUCT)
    if engine == "ivf":
        built.cp.min_points_per_centroid = 1  # otherwise faiss warns about small indexes on its own stream
        built.train(torch.cat([chunk.vector for chunk in index.chunks]).numpy())
    for chunk in index.chunks:
        built.add(chunk.vector.numpy())
    return built


def _read(faiss: Any, path: Path) -> Any:
    try:
        return faiss.read_index(str(path))
    except RuntimeError as error:
        raise InputError(f"{path} is damaged: delete it, it will be built again") from error


def _ordered(scores: Tensor, rows: Tensor) -> Neighbours:
    """The best first; of equal scores the one that was indexed first."""
    rows, order = rows.sort()
    scores = scores[order]
    best = scores.argsort(descending=True, stable=True)
    return Neighbours(scores[best], rows[best])
