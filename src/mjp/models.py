"""Find a model by what a person types: a shipped name, a folder, a hub repository, or `timm:NAME`."""

from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, cast

import timm
import torch
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.method.config import MJPConfig, variant
from mjp.method.model import MJP

SHIPPED = ("mini-cifar10-plain", "mini-cifar10-mjp")


@dataclass(frozen=True)
class Subject:
    """A model under evaluation, wrapped, with what its pictures must look like."""

    name: str
    model: MJP
    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_pct: float
    interpolation: str

    def check_classes(self, found: list[str]) -> None:
        """Refuse pictures whose classes are not the model's."""
        known, count = self.model.classes, cast(int, self.model.model.num_classes)
        if known is not None and known != found:
            odd = sorted(set(known) ^ set(found)) or ["their order"]
            raise InputError(f"the classes of the pictures are not those of {self.name}: {', '.join(odd[:5])} differ")
        if count != len(found):
            raise InputError(f"{self.name} tells {count} classes apart, the pictures have {len(found)}")


def load(name: str) -> MJP:
    """A model that comes with the package, in eval mode. Its card is shipped/NAME/README.md."""
    if name not in SHIPPED:
        raise InputError(f"there is no shipped model {name!r}: choose from {', '.join(SHIPPED)}")
    with as_file(files("mjp").joinpath("shipped", name)) as folder:
        return MJP.from_pretrained(folder).eval()


def find_model(
    text: str, *, random_weights: int | None = None, weights: dict[str, Tensor] | None = None, **build: Any
) -> Subject:
    """The model that `text` names. A plain timm model is wrapped as variant A, so that a plan can be applied to it.

    With a seed for random weights, `timm:NAME` is not downloaded but initialised. `weights`, by their names in timm
    (and in MJP, for what it adds), take the place of the model's own. `build` is for timm: num_classes, img_size.
    """
    if text.startswith("timm:"):
        seed = 0 if weights is not None else random_weights
        model = MJP(_timm(text.removeprefix("timm:"), seed, build), _config(weights or {}))
    elif text in SHIPPED:
        model = load(text)
    else:
        model = MJP.from_pretrained(_place(text))
    if weights is not None:
        _load(model, weights)
    return _subject(text, model)


def _place(text: str) -> Path | str:
    """A folder, that of a training run too, or the name of a repository on a hub."""
    folder = Path(text)
    if (folder / "model" / "config.json").is_file():  # the folder of a training run
        return folder / "model"
    if folder.is_dir():
        return folder
    if text.count("/") != 1 or text.startswith(("/", ".", "~")):  # no name on a hub
        raise InputError(
            f"there is no model {text!r}: give a folder, timm:NAME, a hub repository OWNER/NAME, or a shipped name "
            f"({', '.join(SHIPPED)})"
        )
    return text


def _config(weights: dict[str, Tensor]) -> MJPConfig:
    """How the model was wrapped whose weights these are: variant A, or what the names show."""
    heads = {"localizer.head.0.weight": "nln", "localizer.head.weight": "ln"}
    localize = next((kind for name, kind in heads.items() if name in weights), "none")
    position = next((name for name in ("unknown", "index") if name in weights), "keep")
    return variant("A", position=position, localize=localize)


def _load(model: MJP, weights: dict[str, Tensor]) -> None:
    own = {name.removeprefix("model."): (name, tensor.shape) for name, tensor in model.state_dict().items()}
    if odd := sorted(own.keys() ^ weights.keys()):
        raise InputError(f"the weights are of another model: only one of the two has {', '.join(odd[:3])}")
    for name, tensor in weights.items():
        if tensor.shape != own[name][1]:
            shapes = f"{tuple(tensor.shape)}, in the model {tuple(own[name][1])}"
            raise InputError(f"the weights are of another model: {name} has shape {shapes}")
    model.load_state_dict({own[name][0]: tensor for name, tensor in weights.items()})


def _timm(name: str, random_weights: int | None, build: dict[str, Any]) -> nn.Module:
    if not timm.is_model(name):
        raise InputError(f"timm has no model {name!r}: timm.list_models() names them")
    try:
        if random_weights is None:
            return timm.create_model(name, pretrained=True, **build)
        with torch.random.fork_rng(devices=[]):  # timm draws weights from torch's global generator
            torch.manual_seed(random_weights)
            return timm.create_model(name, **build)
    except (TypeError, AssertionError, ZeroDivisionError) as error:
        changes = ", ".join(f"{setting} {value}" for setting, value in build.items())
        raise InputError(f"timm:{name} cannot be built with {changes}") from error
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"the weights of timm:{name} are not on this machine and cannot be downloaded ({reason}): connect to a "
            "network, or evaluate a model you have"
        ) from error


def _subject(name: str, model: MJP) -> Subject:
    inner: Any = model.model
    facts = inner.pretrained_cfg
    size = tuple(getattr(getattr(inner, "patch_embed", None), "img_size", None) or facts["input_size"][-2:])
    small = max(size) <= 32  # trained, as DeiT does it, on whole pictures
    crop_pct = 1.0 if small else facts.get("crop_pct", 0.875)
    return Subject(name, model, size, facts["mean"], facts["std"], crop_pct, facts.get("interpolation", "bicubic"))
