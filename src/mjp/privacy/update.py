"""An update is what leaves a client: tensors by parameter name, and public information. Nothing else leaves.

    update.safetensors   {parameter name: gradient}, or for FedAvg {parameter name: weight after the local steps}
    update.json          UpdateInfo: number, size and normalisation of the pictures, loss, defence; never a seed

An attack gets these two and the public model, whatever software made them (Flower, PySyft, a script).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mjp.common.errors import InputError, shorten
from mjp.common.files import write_atomically
from mjp.common.parameter_names import plain_name
from mjp.common.weights import DTYPES, EXTRA_STATE, read_tensors
from mjp.privacy.info import UpdateInfo, stated_info

FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz})


@dataclass(frozen=True)
class Update:
    tensors: dict[str, Tensor]
    info: UpdateInfo

    def save(self, path: Path) -> None:
        """Write both files, each under a temporary name first; update.json comes second and completes the pair."""
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        write_atomically(path, lambda temporary: save_file(tensors, temporary))
        text = json.dumps(asdict(self.info), indent=2) + "\n"
        write_atomically(path.with_suffix(".json"), lambda temporary: temporary.write_text(text))


def load_update(path: Path, **changes: Any) -> Update:
    """Read an update. What its json does not state has the default; `changes` override single fields."""
    return Update(read_update(path), UpdateInfo(**stated_info(path, **changes)))


def read_update(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors, .pt or .pth file; clients may send eight-bit floats."""
    return read_tensors(path, what="update", dtypes=DTYPES | FLOAT8)


def check_tensors(content: Any, what: str) -> dict[str, Tensor]:
    """Tensors by name from memory; refuse anything else."""
    if not isinstance(content, Mapping) or not content:
        raise InputError(f"the {what} must be a dictionary of tensors by parameter name")
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise InputError(f"the {what} must hold ordinary tensors by parameter name: {shorten(name)} is none")
    return {name: tensor for name, tensor in content.items() if not name.endswith(EXTRA_STATE)}


def gradients_of(update: Update, model: nn.Module) -> dict[str, Tensor]:
    """{parameter name in timm: gradient}, checked against the public model.

    A FedAvg update becomes the mean gradient of its local steps, (weights before − weights after) / (steps · lr).
    Parameters that were withheld are missing here. Wrapped and bare models give the same names.
    """
    weights = {plain_name(name): p.detach() for name, p in model.named_parameters()}
    tensors = {plain_name(name): _computable(tensor) for name, tensor in update.tensors.items()}
    if len(tensors) < len(update.tensors):
        raise InputError(
            "the update holds a parameter twice, under the name of a wrapped and of a bare model: save one"
        )
    _check_against(tensors, weights)
    if update.info.kind == "gradient":
        gradients = tensors
    else:
        scale = update.info.steps * update.info.lr
        gradients = {name: (weights[name].to(tensor) - tensor) / scale for name, tensor in tensors.items()}
    if not any(bool(tensor.any()) for tensor in gradients.values()):
        raise InputError("every number of the update is zero: it says nothing about any picture")
    return gradients


def _computable(tensor: Tensor) -> Tensor:
    """torch has no arithmetic for eight-bit floats."""
    return tensor.float() if tensor.dtype in FLOAT8 else tensor


def _check_against(tensors: dict[str, Tensor], weights: dict[str, Tensor]) -> None:
    if not tensors:
        raise InputError("the update holds no tensors")
    if foreign := sorted(set(tensors) - set(weights)):
        raise InputError(f"the update is of another model: this one has no parameter {', '.join(foreign[:3])}")
    for name, tensor in tensors.items():
        if tensor.shape != weights[name].shape:
            shapes = f"{tuple(tensor.shape)}, in the model {tuple(weights[name].shape)}"
            raise InputError(f"the update is of another model: {name} has shape {shapes}")
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise InputError(f"{name} of the update must hold floating-point numbers, not {kind}")
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{name} of the update holds NaN or infinity: no picture can be recovered from it")
