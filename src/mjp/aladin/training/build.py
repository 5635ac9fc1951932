"""The parts of a run: a fresh model, or a student beside its frozen teacher, and the learning rate."""

import math
from dataclasses import replace

import torch

from mjp.aladin.data.captions import Captioned, all_captions
from mjp.aladin.model.aladin import Aladin, load_text
from mjp.aladin.model.backbones import find_backbone
from mjp.aladin.model.text import TrainedTextEncoder
from mjp.aladin.model.text_encoders import text_encoder_module
from mjp.aladin.training.config import AladinTraining


def learning_rate(config: AladinTraining, epoch: float) -> float:
    """Linear warm-up, then a cosine to a hundredth."""
    if epoch < config.warmup_epochs:
        return config.lr * (0.01 + 0.99 * epoch / config.warmup_epochs)
    way = (epoch - config.warmup_epochs) / max(config.epochs - config.warmup_epochs, 1e-9)
    return config.lr * (0.01 + 0.99 * (1 + math.cos(math.pi * min(way, 1.0))) / 2)


def fresh_model(config: AladinTraining, data: list[Captioned]) -> Aladin:
    """A model of the configured shape, with a text encoder made for the captions."""
    shape = config.model
    vision = find_backbone(shape.backbone, shape.image_size)
    text = text_encoder_module(shape.text).create(shape, all_captions(data))
    if isinstance(text, TrainedTextEncoder):
        model = Aladin(shape, vision.identity(), vision.width, text)
    else:
        model = Aladin(shape, vision.identity(), vision.width, text_weights=text.weights)
    _set_scale(model, config)
    return model


def student_of_teacher(config: AladinTraining) -> Aladin:
    """The teacher, frozen, with a new matching head of the configured shape."""
    teacher = Aladin.load(config.teacher)
    assert teacher.home is not None
    head = {name: getattr(config.model, name) for name in ("match_layers", "match_shared", "dropout")}
    shape = replace(teacher.config, **head)
    text = load_text(shape, teacher.home)
    vision = teacher.vision_identity, teacher.vision_width
    model = Aladin(shape, *vision, text, text_weights=teacher.text_weights)
    encoders = {name: value for name, value in teacher.state_dict().items() if not name.startswith("matching.")}
    model.load_state_dict(encoders, strict=False)
    model.home = teacher.home
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("matching."))
    _set_scale(model, config)
    return model


def _set_scale(model: Aladin, config: AladinTraining) -> None:
    """τ at the start, learned or not."""
    with torch.no_grad():
        model.log_scale.fill_(math.log(config.student_scale))
    model.log_scale.requires_grad_(config.learn_scale)
