"""Vision backbones. One whose weights come from a package is one file in this folder, selected by its file name
(`--model.backbone NAME` or NAME:VARIANT), with

load(variant, size)   a Vision for inputs of `size` pixels; its own size for None

Any other name is resolved as `mjp eval` does: a folder of an MJP model or of a training run, timm:NAME, or a hub
repository; such a backbone is saved with the model.
"""

from importlib import import_module
from pkgutil import iter_modules

from mjp.aladin.model.vision import Vision
from mjp.common.errors import InputError
from mjp.common.validate import whole


def is_packaged(name: str) -> bool:
    """Whether the backbone's weights come from a package and are not saved with the model."""
    return name.partition(":")[0] in {module.name for module in iter_modules(__path__)}


def find_backbone(name: str, size: int | None = None) -> Vision:
    """The backbone of that name, for inputs of `size` pixels (default: its own size)."""
    if size is not None:
        whole("image_size", size, least=32)
    if is_packaged(name):
        file, _, variant = name.partition(":")
        return import_module(f"{__name__}.{file}").load(variant, size)
    from mjp.models import find_model

    subject = find_model(name)
    if size is not None and (size, size) != tuple(subject.size) and hasattr(subject.model.model, "patch_embed"):
        raise InputError(f"{name} takes pictures of {subject.size}: leave the image size unset")
    side = subject.size if size is None else (size, size)
    return Vision(name, subject.model.eval(), side, subject.mean, subject.std)
