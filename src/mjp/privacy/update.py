"""An update is what leaves a client: tensors by parameter name, and public facts about them. Nothing else leaves.

    update.safetensors   {parameter name: gradient}, or for FedAvg {parameter name: weight after the local steps}
    update.json          Facts: how many pictures, their size and normalisation, the loss, the defence; never a seed

An attack gets these two and the public model. Whatever made them (Flower, PySyft, own code) does not matter.
"""

import json
import math
import pickle
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.common.files import write_atomically

Kind = Literal["gradient", "fedavg"]
MOST_STEPS = 1000
# what MJP, DistributedDataParallel, torch.compile and Opacus put before the name of a parameter
WRAPPERS = ("model.", "module.", "_orig_mod.", "_module.")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a server knows about an update besides its numbers."""

    kind: Kind = "gradient"
    batch: int = 1  # pictures in a step
    size: tuple[int, int] = (224, 224)  # pixels
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)  # normalisation before the network
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    localize_weight: float = 0.0  # λ of the loss: cross entropy + λ·DAL
    defence: str = "none"  # its text, as defences.parse reads it: the server knows the protocol
    steps: int = 1  # FedAvg: local steps of plain SGD
    lr: float = 0.0  # FedAvg: their learning rate

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"kind of the update must be one of {', '.join(get_args(Kind))}, not {self.kind!r}")
        if not all(type(value) is int and value >= 1 for value in (self.batch, self.steps, *self.size)):
            raise InputError("batch, steps and size of the update must be whole numbers of at least 1")
        if self.steps > MOST_STEPS:  # a checker goes through each of them
            raise InputError(f"an update of {self.steps} local steps cannot be checked: at most {MOST_STEPS}")
        if (len(self.size), len(self.mean), len(self.std)) != (2, 3, 3) or not all(value > 0 for value in self.std):
            raise InputError("size must be (height, width); mean and std need three numbers each, std positive ones")
        numbers = (*self.mean, *self.std, self.localize_weight, self.lr)
        if not all(isinstance(value, int | float) and math.isfinite(value) for value in numbers):
            raise InputError("mean, std, localize_weight and lr of the update must be finite numbers")
        if not all(abs(value) <= 1000 for value in numbers) or not all(value >= 1e-3 for value in self.std):
            raise InputError("mean, std, localize_weight and lr must be at most 1000, and std at least 0.001")
        if not isinstance(self.defence, str):
            raise InputError(f"defence of the update must be its text, not {self.defence!r}")
        if self.kind == "fedavg" and not self.lr > 0:
            raise InputError("a FedAvg update needs the learning rate of its local steps: lr above 0")
        if self.kind == "gradient" and self.steps != 1:
            raise InputError("several local steps make weights, not a gradient: state kind fedavg, or one step")


@dataclass(frozen=True)
class Update:
    tensors: dict[str, Tensor]
    facts: Facts

    def save(self, path: Path) -> None:
        """Both files, each under a temporary name first; the facts come second, so that a pair is complete."""
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        write_atomically(path, lambda temporary: save_file(tensors, temporary))
        text = json.dumps(asdict(self.facts), indent=2) + "\n"
        write_atomically(path.with_suffix(".json"), lambda temporary: temporary.write_text(text))


def load_update(path: Path, **changes: Any) -> Update:
    """Read an update. Without its json the facts are the defaults; `changes` override single facts."""
    return Update(read_tensors(path), Facts(**stated_facts(path, **changes)))


def read_tensors(path: Path, what: str = "update") -> dict[str, Tensor]:
    """Tensors by name, of a safetensors file, or of what torch saves (.pt, .pth), of which only tensors are loaded."""
    if not path.is_file():
        raise InputError(f"there is no {what} {path}")
    kind = "torch" if path.suffix in (".pt", ".pth") else "safetensors"
    try:
        found = torch.load(path, map_location="cpu", weights_only=True) if kind == "torch" else load_file(path)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        reason = "" if kind == "torch" else f" ({' '.join(str(error).split())[:120]})"  # torch writes paragraphs
        raise InputError(f"{path} is not a whole {kind} file of tensors{reason}: save it again") from error
    for key in ("model", "state_dict"):  # where checkpoints keep them
        found = found[key] if isinstance(found, dict) and isinstance(found.get(key), dict) else found
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise InputError(f"{path} must hold tensors by parameter name, or under the key model or state_dict")
    return found


def stated_facts(path: Path, **changes: Any) -> dict[str, Any]:
    """What the json beside an update says, if there is one, and over it the changes that are not None; checked."""
    path = path.with_suffix(".json")
    try:
        found = json.loads(path.read_text()) if path.is_file() else {}
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not json: write the facts of the update again") from error
    known = {field.name for field in fields(Facts)}
    if not isinstance(found, dict) or set(found) - known:
        raise InputError(f"{path} must hold facts of an update: {', '.join(sorted(known))}")
    stated: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}
    stated |= {name: value for name, value in changes.items() if value is not None}
    try:
        Facts(**stated)
    except TypeError as error:
        raise InputError(f"{path} holds a fact of the wrong type: {error}") from error
    return stated


def gradients_of(update: Update, model: nn.Module) -> dict[str, Tensor]:
    """{parameter name in timm: gradient}, checked against the public model.

    A FedAvg update becomes the mean gradient of its local steps, (weights before − weights after) / (steps · lr).
    Parameters that were withheld are missing here. Names of a wrapped model and of the bare timm model are the same.
    """
    weights = {plain_name(name): p.detach() for name, p in model.named_parameters()}
    found = {plain_name(name): _readable(tensor) for name, tensor in update.tensors.items()}
    if len(found) < len(update.tensors):
        raise InputError(
            "the update holds a parameter twice, under the name of a wrapped and of a bare model: save one"
        )
    _check(found, weights)
    if update.facts.kind == "gradient":
        gradients = found
    else:
        scale = update.facts.steps * update.facts.lr
        gradients = {name: (weights[name].to(tensor) - tensor) / scale for name, tensor in found.items()}
    if not any(bool(tensor.any()) for tensor in gradients.values()):
        raise InputError("every number of the update is zero: it says nothing about any picture")
    return gradients


def _readable(tensor: Tensor) -> Tensor:
    """Eight-bit floats know no arithmetic."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def plain_name(name: str) -> str:
    """The name of a parameter in timm, whatever was put around the model."""
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    return name


def _check(found: dict[str, Tensor], weights: dict[str, Tensor]) -> None:
    if not found:
        raise InputError("the update holds no tensors")
    if foreign := sorted(set(found) - set(weights)):
        raise InputError(f"the update is of another model: this one has no parameter {', '.join(foreign[:3])}")
    for name, tensor in found.items():
        if tensor.shape != weights[name].shape:
            shapes = f"{tuple(tensor.shape)}, in the model {tuple(weights[name].shape)}"
            raise InputError(f"the update is of another model: {name} has shape {shapes}")
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise InputError(f"{name} of the update must hold floating-point numbers, not {kind}")
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{name} of the update holds NaN or infinity: no picture can be told from it")
