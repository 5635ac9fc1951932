"""Chunk files: the codes of some pictures, float32 vectors and float16 tokens, written once and never changed.

A chunk is memory-mapped: rows are read when they are used. Its metadata names the model and the pictures it belongs to,
so that the file of another index is recognised; files written before 0.2 have no metadata.
"""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from mjp.aladin.model.codes import Codes
from mjp.common.files import write_atomically

MAX_ROWS = 4096  # of a chunk: 50 MB at 49 tokens of width 128
PATTERN = "chunk-*"


class DamagedChunk(Exception):
    """Says what is wrong with a chunk."""


def chunk_path(folder: Path, number: int) -> Path:
    return folder / f"chunk-{number:06}.safetensors"


def write_chunk(path: Path, ids: Sequence[str], codes: Codes, *, model: str) -> None:
    stored = codes._replace(vector=codes.vector.float(), tokens=codes.tokens.half())
    tensors = {name: tensor.cpu().contiguous() for name, tensor in stored._asdict().items()}
    metadata = {"model": model, "pictures": digest(ids)}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata=metadata))


def map_chunk(path: Path, rows: int) -> Codes:
    """The codes in a file of so many rows; DamagedChunk if they are not there, or not codes."""
    try:
        with safe_open(path, "pt") as file:
            codes = Codes(*(file.get_tensor(name) for name in Codes._fields))
    except FileNotFoundError as error:
        raise DamagedChunk("missing") from error
    except (OSError, SafetensorError) as error:
        raise DamagedChunk("empty, truncated or not a chunk") from error
    shapes = [tuple(tensor.shape) for tensor in codes]
    if codes.vector.ndim != 2 or codes.tokens.ndim != 3 or not shapes[2] == shapes[3] == shapes[1][:2]:
        raise DamagedChunk("its tensors do not have the shapes of codes")
    types = [tensor.dtype for tensor in codes]
    if types != [torch.float32, torch.float16, torch.bool, torch.bool]:
        raise DamagedChunk("its tensors do not have the types of codes")
    if shapes[0][0] != rows or shapes[1][0] != rows:
        raise DamagedChunk(f"it has {shapes[0][0]} rows, the catalogue {rows}")
    return codes


def check_chunk(path: Path, ids: Sequence[str], *, model: str) -> Codes:
    """Read a chunk completely; DamagedChunk if anything in it cannot be used."""
    codes = map_chunk(path, len(ids))
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
    if metadata.get("model", model) != model or metadata.get("pictures", digest(ids)) != digest(ids):
        raise DamagedChunk("it belongs to other pictures or another model")
    if not all(bool(tensor.isfinite().all()) for tensor in (codes.vector, codes.tokens)):
        raise DamagedChunk("it contains numbers that are not finite")
    return codes


def digest(ids: Sequence[str]) -> str:
    return sha256("\n".join(ids).encode()).hexdigest()[:16]
