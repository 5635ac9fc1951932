"""The parts of a run: a fresh model, or a student beside its frozen teacher, and the learning rate."""

import math
from dataclasses import replace
from typing import Any

import torch
from timm.optim import create_optimizer_v2, param_groups_weight_decay

from mjp.aladin.data.captions import Captioned, all_captions
from mjp.aladin.data.classes import all_class_texts
from mjp.aladin.model.aladin import Aladin, load_text
from mjp.aladin.model.backbones import find_backbone
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.model.text import TrainedTextEncoder
from mjp.aladin.model.text_encoders import text_encoder_module
from mjp.aladin.model.vision import Vision
from mjp.aladin.training.config import AladinTraining
from mjp.common.errors import InputError, first_line

NEW_PARTS = ("picture_encoder.codes.", "word_weight.")  # what a continued model may have beyond the one it continues
CAPTION_LENGTH = 11  # words


def learning_rate(config: AladinTraining, epoch: float) -> float:
    """Linear warm-up, then a cosine to a hundredth."""
    if epoch < config.warmup_epochs:
        return config.lr * (0.01 + 0.99 * epoch / config.warmup_epochs)
    way = (epoch - config.warmup_epochs) / max(config.epochs - config.warmup_epochs, 1e-9)
    return config.lr * (0.01 + 0.99 * (1 + math.cos(math.pi * min(way, 1.0))) / 2)


def build_optimizer(config: AladinTraining, model: Aladin) -> torch.optim.Optimizer:
    """AdamW. `lr_scale` of a group is the factor of its learning rate."""
    options: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    if not config.train_backbone:
        return create_optimizer_v2(model, "adamw", **options)
    groups: list[dict[str, Any]] = []
    for part, factor in ((model, 1.0), (model.vision.model, config.backbone_lr)):
        spared: set[str] = getattr(part, "no_weight_decay", set)()
        decayed = param_groups_weight_decay(part, config.weight_decay, no_weight_decay_list=spared)
        groups += [{**group, "lr_scale": factor} for group in decayed]
    return create_optimizer_v2(groups, "adamw", **options)


def fresh_model(config: AladinTraining, data: list[Captioned]) -> Aladin:
    """A model of the configured shape, with a text encoder made for the captions."""
    shape = config.model
    vision = find_backbone(shape.backbone, shape.image_size)
    if config.init is not None:
        return continued(config, vision)
    texts = [*all_captions(data), *(all_class_texts() if config.classes else ())]
    text = text_encoder_module(shape.text).create(shape, texts)
    if isinstance(text, TrainedTextEncoder):
        model = Aladin(shape, vision.identity(), vision.width, text)
    else:
        model = Aladin(shape, vision.identity(), vision.width, text_weights=text.weights)
    _set_scale(model, config)
    return model


def continued(config: AladinTraining, vision: Vision) -> Aladin:
    """A model of the configured shape with the weights of a trained one; parts that it lacks start at nothing."""
    assert config.init is not None
    base = find_aladin(str(config.init))
    assert base.home is not None
    if base.backbone_trained:
        if base.config.backbone != config.model.backbone:
            raise InputError(f"{config.init} has trained its backbone: give --model.backbone {base.config.backbone}")
        vision = base.vision
    text = load_text(base.config, base.home)
    model = Aladin(config.model, vision.identity(), vision.width, text, text_weights=base.text_weights)
    model.vision = vision
    try:
        absent, foreign = model.load_state_dict(base.state_dict(), strict=False)
    except RuntimeError as error:
        raise InputError(f"{config.init} has another shape than the model to train ({first_line(error)})") from error
    if foreign or not all(name.startswith(NEW_PARTS) for name in absent):
        raise InputError(f"{config.init} has other parts than the model to train: give both the same --model options")
    if model.word_weight is not None and base.word_weight is None:  # its scale was that of a sum over words
        with torch.no_grad():
            model.log_align_scale.add_(math.log(CAPTION_LENGTH))
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
    if config.init is not None:
        model.matching.load_state_dict(find_aladin(str(config.init), searchable=True).matching.state_dict())
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
