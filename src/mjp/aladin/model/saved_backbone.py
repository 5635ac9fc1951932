"""The backbone of a model on disk, and the copy of it that is trained.

FOLDER/
  backbone/              a backbone that does not come from a package, trained or not
  backbone.safetensors   the weights of a package's backbone, if they were trained
"""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from safetensors.torch import save_file
from torch import nn

from mjp.aladin.model.backbones import find_backbone, is_packaged
from mjp.aladin.model.vision import Vision
from mjp.common.errors import InputError, first_line
from mjp.common.files import write_atomically
from mjp.common.weights import read_tensors

BACKBONE = "backbone"
WEIGHTS = "backbone.safetensors"


def load_backbone(name: str, size: int | None, home: Path | None, *, trained: bool) -> Vision:
    """The backbone of a model in the folder `home`, or the one of that name."""
    if home is not None and (home / BACKBONE).is_dir():
        vision = find_backbone(str(home / BACKBONE), size)
        return replace(vision, trained=trained)
    vision = find_backbone(name, size)
    if not trained or home is None:
        return vision
    vision = trainable(vision)
    weights = read_tensors(home / WEIGHTS, advice="copy or train the model again")
    try:
        vision.model.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(f"{home / WEIGHTS} belongs to another backbone ({first_line(error)})") from error
    return vision


def save_backbone(vision: Vision, name: str, folder: Path) -> None:
    """Save what a package does not hold."""
    if not is_packaged(name):
        vision.model.save_pretrained(folder / BACKBONE)  # type: ignore[operator]
    elif vision.trained:
        weights = {key: tensor.detach().contiguous().cpu() for key, tensor in vision.model.state_dict().items()}
        write_atomically(folder / WEIGHTS, lambda path: save_file(weights, path, metadata={"format": "pt"}))


def trainable(vision: Vision) -> Vision:
    """A copy to train: towers of a pretrained pair are shared by all who loaded them."""
    model: nn.Module = deepcopy(vision.model)
    return replace(vision, model=model, trained=True)
