"""Masked Jigsaw Puzzle position embeddings around any timm image classifier, in one line:

    model = mjp.MJP(timm.create_model("deit_small_patch16_224"), "paper")

Names load on first use, so that `import mjp` and `mjp --help` stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mjp.common import torchvision_operators

if TYPE_CHECKING:
    from mjp.common.errors import InputError as InputError
    from mjp.method.config import MJPConfig as MJPConfig
    from mjp.method.config import preset as preset
    from mjp.method.config import variant as variant
    from mjp.method.localization import Localizer as Localizer
    from mjp.method.localization import localization_loss as localization_loss
    from mjp.method.model import MJP as MJP
    from mjp.method.model import MJPOutput as MJPOutput
    from mjp.method.per_sample import per_sample_gradients as per_sample_gradients
    from mjp.method.plan import Plan as Plan
    from mjp.method.plan import identity_plan as identity_plan
    from mjp.method.plan import plan_from_mask as plan_from_mask
    from mjp.method.plan import sample_plan as sample_plan
    from mjp.method.reference_checkpoint import load_reference_checkpoint as load_reference_checkpoint
    from mjp.method.shuffle import shuffle_image as shuffle_image
    from mjp.method.shuffle import shuffle_tokens as shuffle_tokens
    from mjp.method.shuffle import spp as spp
    from mjp.models import load as load

__version__ = "0.2.0"

_HOME = {
    "InputError": "mjp.common.errors",
    "MJPConfig": "mjp.method.config",
    "preset": "mjp.method.config",
    "variant": "mjp.method.config",
    "Localizer": "mjp.method.localization",
    "localization_loss": "mjp.method.localization",
    "MJP": "mjp.method.model",
    "MJPOutput": "mjp.method.model",
    "per_sample_gradients": "mjp.method.per_sample",
    "Plan": "mjp.method.plan",
    "identity_plan": "mjp.method.plan",
    "plan_from_mask": "mjp.method.plan",
    "sample_plan": "mjp.method.plan",
    "load_reference_checkpoint": "mjp.method.reference_checkpoint",
    "shuffle_image": "mjp.method.shuffle",
    "shuffle_tokens": "mjp.method.shuffle",
    "spp": "mjp.method.shuffle",
    "load": "mjp.models",
}
_ROOMS = ("aladin", "federated", "privacy")
__all__ = ["__version__", *_HOME]

torchvision_operators.install()


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"mjp.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'mjp' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, *_ROOMS]
