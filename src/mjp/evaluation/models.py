"""Find a model by what a person types: a shipped name, a folder, a hub repository, or `timm:NAME`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import timm
import torch
from torch import nn

from mjp.errors import InputError
from mjp.method.config import variant
from mjp.method.model import MJP
from mjp.shipped import SHIPPED, load


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


def find_model(text: str, *, random_weights: int | None = None) -> Subject:
    """The model that `text` names. A plain timm model is wrapped as variant A, so that a plan can be applied to it.

    With a seed for random weights, `timm:NAME` is not downloaded but initialised.
    """
    if text.startswith("timm:"):
        return _subject(text, MJP(_timm(text.removeprefix("timm:"), random_weights), variant("A")))
    if text in SHIPPED:
        return _subject(text, load(text))
    folder = Path(text)
    if (folder / "model" / "config.json").is_file():  # the folder of a training run
        folder = folder / "model"
    if folder.is_dir():
        return _subject(text, MJP.from_pretrained(folder))
    if text.count("/") != 1 or text.startswith(("/", ".", "~")):  # no name on a hub
        raise InputError(
            f"there is no model {text!r}: give a folder, timm:NAME, a hub repository OWNER/NAME, or a shipped name "
            f"({', '.join(SHIPPED)})"
        )
    return _subject(text, MJP.from_pretrained(text))


def _timm(name: str, random_weights: int | None) -> nn.Module:
    if not timm.is_model(name):
        raise InputError(f"timm has no model {name!r}: timm.list_models() names them")
    if random_weights is not None:
        with torch.random.fork_rng(devices=[]):  # timm draws weights from torch's global generator
            torch.manual_seed(random_weights)
            return timm.create_model(name)
    try:
        return timm.create_model(name, pretrained=True)
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
