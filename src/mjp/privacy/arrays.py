"""Updates without names, or with names of somebody's own: lists of arrays in the order of a state dict, prefixes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.parameter_names import plain_name, shared_prefix
from mjp.common.weights import EXTRA_STATE, UNNAMED
from mjp.method.model import MJP

Shapes = list[tuple[str, tuple[int, ...]]]


def from_list(arrays: Sequence[Any]) -> dict[str, Any]:
    """Arrays or tensors in order, as a file of them would be read."""
    tensors = (torch.from_numpy(array) if isinstance(array, np.ndarray) else array for array in arrays)
    return {f"{UNNAMED}{number}": tensor for number, tensor in enumerate(tensors)}


def is_list(tensors: Iterable[str]) -> bool:
    """Whether the names are only numbers."""
    return all(re.fullmatch(rf"{UNNAMED}\d+", name) for name in tensors)


# what PEFT puts into the names of layers that it adapts or trains whole, and the copies that it leaves untouched
PEFT = re.compile(r"\.(?:base_layer|modules_to_save\.[^.]+)(?=\.)")
UNTOUCHED = ".original_module."


def plain_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by their names in timm: without the prefix of somebody's module, and without those of wrappers."""
    tensors = {name: tensor for name, tensor in tensors.items() if UNTOUCHED not in name}
    names = [PEFT.sub("", plain_name(name)) for name in tensors]
    prefix = shared_prefix(names)
    plain = {name.removeprefix(prefix): tensor for name, tensor in zip(names, tensors.values(), strict=True)}
    if len(plain) < len(tensors):
        raise InputError("a parameter is there twice, under the name of a wrapped and of a bare model: save one")
    return plain


def class_count(tensors: Mapping[str, Tensor]) -> int | None:
    """The number of classes, from the classifier; in a list that is the last layer, a matrix and a vector."""
    if "head.bias" in tensors:
        return tensors["head.bias"].numel()
    if len(tensors) < 2 or not is_list(tensors):
        return None
    *_, matrix, vector = _in_order(tensors)
    return len(vector) if matrix.ndim == 2 and vector.shape == matrix.shape[:1] else None


def name_list(tensors: Mapping[str, Tensor], model: MJP, what: str) -> dict[str, Tensor]:
    """The arrays of a list by their names in the model whose state dict has these shapes in this order."""
    arrays = _in_order(tensors)
    for shapes in _orders(model):
        if len(shapes) == len(arrays) and all(
            name.endswith(EXTRA_STATE) or shape == tuple(array.shape)
            for (name, shape), array in zip(shapes, arrays, strict=True)
        ):
            named = {name: array for (name, _), array in zip(shapes, arrays, strict=True)}
            return {plain_name(name): array for name, array in named.items() if not name.endswith(EXTRA_STATE)}
    raise InputError(
        f"the {what} is a list of {len(arrays)} arrays, which are not those of the model's state dict in its order: "
        "save them by parameter name"
    )


def _orders(model: MJP) -> list[Shapes]:
    """The orders in which a client may have listed the tensors of its model: bare, wrapped, without extra state."""
    bare, wrapped = (
        [(name, tuple(tensor.shape)) for name, tensor in module.state_dict().items()]
        for module in (model.unwrap(), model)
    )
    parameters = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
    return [bare, wrapped, [(name, shape) for name, shape in wrapped if not name.endswith(EXTRA_STATE)], parameters]


def _in_order(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    return [tensors[name] for name in sorted(tensors, key=lambda name: int(name.removeprefix(UNNAMED)))]
