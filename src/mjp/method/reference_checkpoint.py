"""Read the checkpoints of the MJP authors' code without running anything that is in them.

Their files are pickles that also hold a yacs configuration object. torch's weights-only reader would refuse it; it is
told to build a dictionary instead, and refuses everything else that is not a tensor or a plain value.
"""

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mjp.common.errors import InputError

if TYPE_CHECKING:
    from mjp.method.model import MJP


def load_reference_checkpoint(path: str | Path, model: "MJP") -> None:
    """Load a checkpoint of the authors' code: timm weights, position table, E_unk and localization head.

    Args:
        path: Their .pth file. Only tensors are read from it; nothing in it is executed.
        model: A wrapped ViT of the same architecture and variant, which is changed in place. A file that does not fit
            is refused, and the model keeps its weights.
    """
    converted = convert_reference_weights(_read_weights(Path(path)))
    expected = {name: tensor.shape for name, tensor in model.weights().items()}
    shapes = {name: tensor.shape for name, tensor in converted.items()}
    wrong = sorted(name for name in expected.keys() | shapes.keys() if expected.get(name) != shapes.get(name))
    if wrong:
        examples = ", ".join(f"{n} (file {_size(shapes, n)}, model {_size(expected, n)})" for n in wrong[:5])
        more = ", ..." if wrong[5:] else ""
        raise InputError(f"{path} does not fit this model and configuration: {examples}{more}")
    model.load_state_dict(converted)


def convert_reference_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their names and layout → ours. `pos_embed.weight` holds 1 + N + 1 rows: class token, patches, E_unk."""
    converted = {}
    for name, tensor in weights.items():
        if name == "pos_embed.weight" and tensor.ndim == 2:
            converted["model.pos_embed"] = tensor[:-1].unsqueeze(0)
            converted["unknown"] = tensor[-1]
        elif name.startswith("dlocr.layers."):
            converted["localizer.head." + name.removeprefix("dlocr.layers.")] = tensor
        elif name == "index_embed" and tensor.ndim == 3:
            converted["index"] = tensor[:, 1:]  # the first row belongs to the class token; it is added to that below
        else:
            converted["model." + name] = tensor
    if "index" in converted and "model.cls_token" in converted:
        converted["model.cls_token"] = converted["model.cls_token"] + weights["index_embed"][:, :1]
    return converted


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    try:
        # a yacs node is read as an ordered dictionary: its data, none of its code
        with torch.serialization.safe_globals([(OrderedDict, "yacs.config.CfgNode")]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        raise InputError(f"{path} is damaged or holds more than weights, and was not loaded") from error
    weights = content.get("model", content) if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not weights or not all(map(_is_weight, weights.items())):
        raise InputError(f"{path} holds no table of weights: a dictionary is expected, or one under the key 'model'")
    return {name.removeprefix("module."): tensor for name, tensor in weights.items()}


def _is_weight(item: tuple[object, object]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], Tensor)


def _size(shapes: dict[str, torch.Size], name: str) -> str:
    return str(tuple(shapes[name])) if name in shapes else "none"
