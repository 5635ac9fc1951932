"""From what a person typed to a model: a shipped name, a folder, a training run, `timm:NAME`, or a hub repository."""

import copy
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, cast

import timm
import torch
from huggingface_hub import try_to_load_from_cache
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.common.hub import hub_is_reachable
from mjp.common.parameter_names import plain_name
from mjp.common.weights import read_tensors
from mjp.method.config import MJPConfig, variant
from mjp.method.model import MJP
from mjp.pictures.preprocessing import Preprocessing

SHIPPED = ("mini-cifar10-plain", "mini-cifar10-mjp")
NAME_A_MODEL = "a shipped name, a folder, timm:NAME, or a hub repository OWNER/NAME"


@dataclass(frozen=True)
class Subject:
    """A model to evaluate or to attack, wrapped, with how its pictures enter it."""

    name: str
    model: MJP
    preprocessing: Preprocessing

    @property
    def size(self) -> tuple[int, int]:
        return self.preprocessing.size

    @property
    def mean(self) -> tuple[float, float, float]:
        return self.preprocessing.mean

    @property
    def std(self) -> tuple[float, float, float]:
        return self.preprocessing.std

    def check_classes(self, names: list[str]) -> None:
        """Refuse pictures whose classes are not the model's."""
        classes, count = self.model.classes, cast(int, self.model.model.num_classes)
        if classes is not None and classes != names:
            odd = sorted(set(classes) ^ set(names)) or ["their order"]
            raise InputError(f"the classes of the pictures are not those of {self.name}: {', '.join(odd[:5])} differ")
        if count != len(names):
            raise InputError(f"{self.name} has {count} classes, the pictures have {len(names)}")


def load(name: str) -> MJP:
    """Load a model that comes with the package.

    Args:
        name: "mini-cifar10-plain" or "mini-cifar10-mjp", a pair that differs only in the method.

    Returns:
        The wrapped model in eval mode; it takes (B, 3, 32, 32) images.
    """
    if name not in SHIPPED:
        raise InputError(f"there is no shipped model {name!r}: choose from {', '.join(SHIPPED)}")
    with as_file(files("mjp").joinpath("shipped", name)) as folder:
        return MJP.from_pretrained(folder).eval()


def find_model(
    text: str, *, random_weights: int | None = None, weights: dict[str, Tensor] | None = None, **build: Any
) -> Subject:
    """The model that `text` names, in float32. A plain timm model is wrapped as variant A: a plan applies to it too.

    With a seed for random weights, `timm:NAME` is not downloaded but initialised. `weights`, by their names in timm
    (and in MJP, for what it adds), take the place of the model's own. `build` is for timm: num_classes, img_size.
    """
    if text.startswith("timm:"):
        if weights is not None:
            build = _classes_of(text.removeprefix("timm:"), weights) | build
        seed = 0 if weights is not None else random_weights
        model = MJP(create_timm(text.removeprefix("timm:"), seed, build), _config_of(weights or {}))
    elif text in SHIPPED:
        model = load(text)
    else:
        model = MJP.from_pretrained(model_place(text))
    if weights is not None:
        _replace_weights(model, weights)
    return subject_of(text, model)


def subject_of(name: str, model: MJP) -> Subject:
    """The model under its name, in float32; refuses weights that are not numbers."""
    if bad := [key for key, tensor in model.state_dict().items() if not bool(tensor.isfinite().all())]:
        raise InputError(f"the weights of {name} hold NaN or infinity, first in {bad[0]}: train or save it again")
    return Subject(name, model.float(), model.preprocessing or _preprocessing(model))


def as_subject(model: MJP, *, weights: dict[str, Tensor] | None = None) -> Subject:
    """A model in memory; with `weights`, by their names in timm, a copy of it that has those."""
    if weights is not None:
        model = copy.deepcopy(model)
        _replace_weights(model, weights)
    return Subject("model", model, model.preprocessing or _preprocessing(model))


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by their names in timm (and in MJP, for what it adds)."""
    return {plain_name(name): tensor for name, tensor in read_tensors(path).items()}


def model_place(text: str) -> Path | str:
    """A folder, that of a training run too, or the name of a hub repository; what is on this machine comes first."""
    path = Path(text).expanduser()
    if (path / "model" / "config.json").is_file():  # the folder of a training run
        return path / "model"
    if path.is_dir():
        return path
    if path.is_file():
        raise InputError(f"{text} is a file: name its model, as in timm:NAME, and give the file with --weights")
    if text.count("/") != 1 or text.startswith(("/", ".", "~")) or path.parent.is_dir():  # not a name on a hub
        raise InputError(f"there is no model {text!r}: give {NAME_A_MODEL} (shipped: {', '.join(SHIPPED)})")
    return text


def _classes_of(name: str, weights: dict[str, Tensor]) -> dict[str, int]:
    """The number of classes that the weights are for, as an argument of the timm model; its head has many names."""
    config: Any = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
    classifier = config.classifier if config else None
    heads = (classifier,) if isinstance(classifier, str) else tuple(classifier or ())
    return next(({"num_classes": weights[f"{h}.bias"].numel()} for h in heads if f"{h}.bias" in weights), {})


def _config_of(weights: dict[str, Tensor]) -> MJPConfig:
    """How the model was wrapped whose weights these are: variant A, or what the names show."""
    heads = {"localizer.head.0.weight": "nln", "localizer.head.weight": "ln"}
    localize = next((kind for name, kind in heads.items() if name in weights), "none")
    position = next((name for name in ("unknown", "index") if name in weights), "keep")
    return variant("A", position=position, localize=localize)


def _replace_weights(model: MJP, weights: dict[str, Tensor]) -> None:
    names = {name.removeprefix("model."): (name, tensor.shape) for name, tensor in model.weights().items()}
    if odd := sorted(names.keys() ^ weights.keys()):
        raise InputError(f"the weights are of another model: only one of the two has {', '.join(odd[:3])}")
    for name, tensor in weights.items():
        if tensor.shape != names[name][1]:
            shapes = f"{tuple(tensor.shape)}, in the model {tuple(names[name][1])}"
            raise InputError(f"the weights are of another model: {name} has shape {shapes}")
    model.load_state_dict({names[name][0]: tensor for name, tensor in weights.items()})


def create_timm(name: str, random_weights: int | None, build: dict[str, Any]) -> nn.Module:
    """A timm model with the weights that timm has for it, or with random ones from a seed."""
    if not timm.is_model(name):
        raise InputError(f"timm has no model {name!r}: timm.list_models() names them")
    try:
        if random_weights is None:
            return timm.create_model(name, pretrained=True, **_cached_file(name), **build)
        with torch.random.fork_rng(devices=[]):  # timm draws weights from torch's global generator
            torch.manual_seed(random_weights)
            return timm.create_model(name, **build)
    except (TypeError, AssertionError, ZeroDivisionError) as error:
        changes = ", ".join(f"{setting} {value}" for setting, value in build.items())
        raise InputError(f"timm:{name} cannot be built with {changes}") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise _unavailable(name, " ".join(str(error).split())[:200]) from error


def _cached_file(name: str) -> dict[str, Any]:
    """Without a network: the argument by which timm reads the file in the hub's cache, instead of half a minute."""
    if hub_is_reachable():
        return {}
    config = timm.get_pretrained_cfg(name)
    file = try_to_load_from_cache(config.hf_hub_id, "model.safetensors") if config and config.hf_hub_id else None
    if not isinstance(file, str):
        raise OSError("the hub cannot be reached, and they are not in its cache")
    return {"pretrained_cfg_overlay": {"file": file}}


def _unavailable(name: str, reason: str) -> InputError:
    return InputError(
        f"the weights of timm:{name} cannot be downloaded ({reason}): connect to a network, or give a file of them "
        "(--weights; in training --checkpoint)"
    )


def _preprocessing(model: MJP) -> Preprocessing:
    """What timm says of the model, for those that were saved before preprocessing was stored, and timm's own."""
    backbone: Any = model.model
    config = backbone.pretrained_cfg
    size = tuple(getattr(getattr(backbone, "patch_embed", None), "img_size", None) or config["input_size"][-2:])
    crop_pct = 1.0 if max(size) <= 32 else config.get("crop_pct", 0.875)  # small pictures are not cut in training
    interpolation = config.get("interpolation", "bicubic")
    return Preprocessing(size, tuple(config["mean"]), tuple(config["std"]), crop_pct, interpolation)
