"""Find a retrieval model by what a person typed: the name of the shipped one, a folder, or a pair of open_clip."""

from importlib.resources import files
from pathlib import Path

import torch

from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.backbones import find_backbone
from mjp.aladin.model.clip_pair import PREFIX
from mjp.aladin.model.config import AladinConfig
from mjp.aladin.model.text import TrainedTextEncoder
from mjp.aladin.model.text_encoders import text_encoder_module
from mjp.common.errors import InputError

SHIPPED = "aladin-flickr8k"
HOME = Path(str(files("mjp").joinpath("shipped")))


def find_aladin(name: str, *, searchable: bool = False) -> Aladin:
    """The model of that name or folder; `searchable`: refuse one without trained vectors."""
    if name == SHIPPED:
        if not (HOME / name).is_dir():
            raise InputError(f"this installation does not include {name}: train a model and pass it as --model FOLDER")
        return Aladin.load(HOME / name)
    if name.startswith(PREFIX):
        return untrained_pair(name)
    model = Aladin.load(Path(name))
    if searchable and not model.matching_trained:
        raise InputError(
            f"{name} comes from --phase align, which trains no vectors to search by: run mjp aladin train "
            f"--phase distill --teacher {name} and use its result"
        )
    return model


def source_of(model: Aladin) -> str:
    """The name or full path with which `find_aladin` finds a loaded model again."""
    if not model.alignment_trained:
        return model.config.backbone
    if model.home is None:
        raise InputError("save the model and load it from its folder first: an index must be able to find it again")
    return SHIPPED if model.home == HOME / SHIPPED else str(model.home.resolve())


def untrained_pair(name: str) -> Aladin:
    """A pretrained pair as it was published: its own vectors, and an alignment head that has learned nothing yet."""
    config = AladinConfig(backbone=name, text="open_clip", layers=1, match_layers=1, width=64, align_width=64)
    vision = find_backbone(name)
    text = text_encoder_module("open_clip").create(config, [])
    assert not isinstance(text, TrainedTextEncoder)
    with torch.random.fork_rng(devices=[]):  # the same weights, and so the same hash, every time
        torch.manual_seed(0)
        model = Aladin(config, vision.identity(), vision.width, text_weights=text.weights)
    model.alignment_trained = False
    return model.eval()
