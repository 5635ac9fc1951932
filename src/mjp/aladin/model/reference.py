"""Vectors of some training pictures, beside a model: what a score of a query is worth can be told from them.

FOLDER/reference.safetensors    vectors (at most PICTURES, D) of the matching head, without the class channel's part
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from mjp.common.files import write_atomically
from mjp.common.weights import read_tensors

PICTURES = 1000
FILE = "reference.safetensors"
NAME = "vectors"


def save_reference(vectors: Tensor, folder: Path) -> None:
    tensors = {NAME: vectors.to("cpu", torch.float16).contiguous()}
    write_atomically(folder / FILE, lambda path: save_file(tensors, path))


def load_reference(folder: Path | None) -> Tensor | None:
    """(N, D); None for a model without them, as a pretrained pair is."""
    if folder is None or not (folder / FILE).is_file():
        return None
    return read_tensors(folder / FILE, advice="delete it, or train the model again")[NAME].float()
