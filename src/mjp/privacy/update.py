"""An update is what leaves a client: tensors by parameter name, and public information. Nothing else leaves.

    update.safetensors   {parameter name: gradient}, {parameter name: weight after the local steps} for FedAvg, or
                         {parameter name: change of the weight}
    update.json          UpdateInfo: number, size and normalisation of the pictures, loss, defence; never a seed

An attack gets these two and the public model, whatever software made them (Flower, PySyft, a script).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save, save_file
from torch import Tensor, nn

from mjp.common.errors import InputError, shorten
from mjp.common.files import write_atomically
from mjp.common.parameter_names import plain_name
from mjp.common.weights import DTYPES, EXTRA_STATE, read_tensors
from mjp.privacy.arrays import from_list, plain_tensors
from mjp.privacy.info import UpdateInfo, check_stated, stated_info

FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz})


@dataclass(frozen=True)
class Update:
    tensors: dict[str, Tensor]
    info: UpdateInfo

    def save(self, path: Path) -> None:
        """Write both files, each under a temporary name first; update.json comes second and completes the pair."""
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = self._plain_tensors()
        write_atomically(path, lambda temporary: save_file(tensors, temporary))
        text = json.dumps(asdict(self.info), indent=2) + "\n"
        write_atomically(path.with_suffix(".json"), lambda temporary: temporary.write_text(text))

    def as_sent(self) -> "Update":
        """What a server gets: the content of both files and nothing else that is in memory. No file is written."""
        content = json.loads(json.dumps(asdict(self.info)))
        info = UpdateInfo(**check_stated(content, source="the update"))
        return Update(load(save(self._plain_tensors())), info)

    def _plain_tensors(self) -> dict[str, Tensor]:
        return {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}


def load_update(path: Path, **changes: Any) -> Update:
    """Read an update. What its json does not state has the default; `changes` override single fields."""
    return Update(read_update(path), UpdateInfo(**stated_info(path, **changes)))


def read_update(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors, .pt, .pth or .npz file; clients may send eight-bit floats."""
    return read_tensors(path, what="update", dtypes=DTYPES | FLOAT8)


def check_tensors(content: Any, what: str) -> dict[str, Tensor]:
    """Tensors by name, or a list of arrays, from memory; refuse anything else."""
    if isinstance(content, list | tuple):
        content = from_list(content)
    if not isinstance(content, Mapping) or not content:
        raise InputError(f"the {what} must be a dictionary of tensors by parameter name")
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise InputError(f"the {what} must hold ordinary tensors by parameter name: {shorten(name)} is none")
    return {name: tensor for name, tensor in content.items() if not name.endswith(EXTRA_STATE)}


def gradients_of(update: Update, model: nn.Module) -> dict[str, Tensor]:
    """{parameter name in timm: gradient}, checked against the public model.

    Weights after local steps, and their change, become the mean gradient of the steps (see `undo_optimizer`).
    Parameters that were withheld are missing here. Wrapped and bare models give the same names.
    """
    weights = {plain_name(name): p.detach() for name, p in model.named_parameters()}
    gradients = changes_of(update, model)
    if update.info.kind != "gradient":
        gradients = {
            name: undo_optimizer(change, weights[name].to(change), update.info) for name, change in gradients.items()
        }
    if not any(bool(tensor.any()) for tensor in gradients.values()):
        raise InputError("every number of the update is zero: it says nothing about any picture")
    return gradients


def changes_of(update: Update, model: nn.Module) -> dict[str, Tensor]:
    """{parameter name in timm: its gradient, or by how much the local steps lowered it}, checked against the model."""
    weights = {plain_name(name): p.detach() for name, p in model.named_parameters()}
    tensors = {name: _computable(tensor) for name, tensor in plain_tensors(update.tensors).items()}
    _check_against(tensors, weights)
    if update.info.kind == "fedavg":
        return {name: weights[name].to(tensor) - tensor for name, tensor in tensors.items()}
    return {name: -tensor for name, tensor in tensors.items()} if update.info.kind == "delta" else tensors


def undo_optimizer(moved: Tensor, weight: Tensor, info: UpdateInfo) -> Tensor:
    """The mean gradient of local steps that moved a weight by −`moved`, up to a factor where the rate is unknown.

    SGD          moved = lr · Σ gradients: their mean; momentum keeps it a sum of gradients, only with other factors.
    decay        every step adds lr · decay · weight; the weight is taken as constant over the steps.
    Adam, AdamW  one step from the zero state is r = g / (|g| + eps), nearly the sign of g. It is not only the sign:
                 g = eps · r / (1 − |r|), as far as the digits of the weights go. Several steps are not undone.
    """
    if not bool(moved.any()):  # frozen: not even its weight decayed
        return moved
    mean = moved / info.scale
    # Adam's decay is a part of its gradient
    decay = 0.0 if info.optimizer == "adam" or not info.lr else info.weight_decay * weight
    if info.optimizer not in ("adam", "adamw") or info.steps > 1 or not info.lr:
        return mean - decay
    ratio = (mean - decay).double()
    # below this, 1 − |r| is rounding: of the weights, of which the step is a small part, and of the step itself
    digits = torch.finfo(weight.dtype).eps
    floor = 4 * digits * (1 + weight.double().abs() / info.lr)
    gradient = info.eps * ratio / torch.maximum(1 - ratio.abs(), floor)
    if info.optimizer == "adam":
        gradient = gradient - info.weight_decay * weight.double()
    return gradient.to(moved.dtype)


def split_finite(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors without NaN and infinity, and the names of the others: a broken layer hides nothing of the rest."""
    finite = {name: tensor for name, tensor in tensors.items() if bool(torch.isfinite(_computable(tensor)).all())}
    return finite, [name for name in tensors if name not in finite]


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
            raise InputError(f"{name} of the update holds NaN or infinity, with which no attack can compute")
