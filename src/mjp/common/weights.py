"""The checked door for tensors from outside: safetensors files, what torch saves, by its weights-only loader, and
NumPy's .npz archives.

Nothing in a file is executed. A tensor is refused if its type is one that networks here are not computed in, or if the
file holds less of it than it claims: such a tensor takes no room on the disk and all memory when it is copied.
"""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from mjp.common.errors import InputError, first_line
from mjp.common.files import open_regular

DTYPES = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    | {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
)
PICKLED = (".pt", ".pth", ".bin", ".tar", ".ckpt")  # as torch.save names its files; anything else is safetensors
NUMPY = ".npz"
MAX_UNPACKED = 16 * 2**30  # bytes of an archive, which may claim anything
UNNAMED = "arr_"  # how NumPy names the arrays of a list, by their number; so are those of a list of tensors
EXTRA_STATE = "_extra_state"  # what torch keeps in a state dict beside the weights


def read_tensors(
    path: Path,
    *,
    what: str = "file of weights",
    advice: str = "save it again",
    dtypes: frozenset[torch.dtype] = DTYPES,
) -> dict[str, Tensor]:
    """Tensors by name, on the CPU; also those that a checkpoint keeps under a key, its moving average first.

    A list of tensors gets the names arr_0, arr_1, ..., as NumPy has them.
    """
    content = _reader(path)(path, what=what, advice=advice)
    for key in ("ema", "model_ema", "state_dict_ema", "model", "state_dict"):
        content = content[key] if isinstance(content, dict) and isinstance(content.get(key), dict) else content
    if isinstance(content, list | tuple):
        content = {f"{UNNAMED}{number}": tensor for number, tensor in enumerate(content)}
    if not isinstance(content, dict) or not content or not all(isinstance(name, str) for name in content):
        raise InputError(f"{path} must hold tensors by parameter name, or under the key model or state_dict")
    content = {name: value for name, value in content.items() if not name.endswith(EXTRA_STATE)}
    for name, tensor in content.items():
        if not isinstance(tensor, Tensor):
            raise InputError(f"{path} must hold tensors by parameter name, but {name[:80]} is not a tensor")
        check_tensor(path, name, tensor, dtypes)
    return content


def _reader(path: Path) -> Callable[..., Any]:
    if path.suffix == NUMPY:
        return _read_numpy
    return read_torch if path.suffix in PICKLED else _read_safetensors


def _read_numpy(path: Path, *, what: str, advice: str) -> Any:
    """The arrays of an archive; pickled objects are refused."""
    check_regular(path, what)
    try:
        with ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MAX_UNPACKED:
            raise InputError(f"{path} claims to hold {size / 2**30:.0f} GB: {advice}")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(np.asarray(arrays[name])) for name in arrays.files}
    except InputError:
        raise
    except Exception as error:  # archives are damaged in many ways, and arrays may be of types that torch has not
        raise InputError(
            f"{path} is not a complete .npz file of plain arrays ({first_line(error)}): {advice}"
        ) from error


def read_torch(path: Path, *, what: str = "file", advice: str = "save it again") -> Any:
    """What torch saved in a file: tensors and plain values, never code."""
    check_regular(path, what)
    try:
        with torch.serialization.safe_globals([Namespace]):  # in which training scripts keep their command line
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # on foreign bytes an unpickler may stumble over anything; torch explains in paragraphs
        raise InputError(f"{path} is damaged or holds more than tensors and plain values: {advice}") from error


def _read_safetensors(path: Path, *, what: str, advice: str) -> Any:
    check_regular(path, what)
    try:
        return load_file(path)
    except Exception as error:
        raise InputError(f"{path} is not a complete safetensors file ({first_line(error)}): {advice}") from error


def check_regular(path: Path, what: str) -> None:
    """Refuse what is not there, and what cannot be read to its end."""
    try:
        open_regular(path).close()
    except FileNotFoundError as error:
        raise InputError(f"there is no {what} {path}") from error


def check_tensor(path: Path, name: str, tensor: Tensor, dtypes: frozenset[torch.dtype] = DTYPES) -> None:
    """Refuse a tensor of a type that is not supported, or that claims more values than the file holds."""
    if tensor.layout != torch.strided or tensor.dtype not in dtypes:
        kind = str(tensor.dtype if tensor.layout == torch.strided else tensor.layout).removeprefix("torch.")
        raise InputError(f"{path}: {name[:80]} is of type {kind}, which is not supported: convert it to float32")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise InputError(f"{path}: {name[:80]} claims {tuple(tensor.shape)} values and the file does not hold them")
