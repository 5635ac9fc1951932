"""The parts of a run: a fresh model, or a student beside its frozen teacher, and the learning rate."""

import math
from dataclasses import replace

import torch

from mjp.aladin.data.captions import Captioned, all_captions
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.text import MiniLM
from mjp.aladin.model.tokenizer import train_tokenizer
from mjp.aladin.model.vision import find_backbone
from mjp.aladin.model.words import word_tokenizer, word_vectors
from mjp.aladin.training.config import AladinTraining


def learning_rate(config: AladinTraining, epoch: float) -> float:
    """Linear warm-up, then a cosine to a hundredth."""
    if epoch < config.warmup_epochs:
        return config.lr * (0.01 + 0.99 * epoch / config.warmup_epochs)
    way = (epoch - config.warmup_epochs) / max(config.epochs - config.warmup_epochs, 1e-9)
    return config.lr * (0.01 + 0.99 * (1 + math.cos(math.pi * min(way, 1.0))) / 2)


def fresh_model(config: AladinTraining, data: list[Captioned]) -> Aladin:
    """A model of the configured shape, with a tokenizer trained on the captions."""
    vision = find_backbone(config.model.backbone, config.model.image_size)
    texts, shape = all_captions(data), config.model
    tokenizer, source = None, None if shape.text == "pieces" else MiniLM()
    if source is None:
        tokenizer = train_tokenizer(texts, shape.vocabulary)
    elif shape.text == "words":
        tokenizer = word_tokenizer(texts, shape.vocabulary, source)
    frozen = source.weights if source is not None and shape.text == "minilm" else None
    model = Aladin(shape, vision.facts(), vision.width, tokenizer, minilm_weights=frozen)
    if source is not None and model.pieces is not None and tokenizer is not None:
        model.pieces.table.weight.data = word_vectors(tokenizer, source, shape.word_width)
    _set_scale(model, config)
    return model


def student_of_teacher(config: AladinTraining) -> Aladin:
    """The teacher, frozen, with a new matching head of the configured shape."""
    teacher = Aladin.load(config.teacher)
    own = config.model
    shape = replace(teacher.config, match_layers=own.match_layers, match_shared=own.match_shared, dropout=own.dropout)
    tokenizer = None if teacher.pieces is None else teacher.pieces.tokenizer
    facts = teacher.vision_facts, teacher.vision_width
    model = Aladin(shape, *facts, tokenizer, minilm_weights=teacher.minilm_weights)
    kept = {name: value for name, value in teacher.state_dict().items() if not name.startswith("matching.")}
    model.load_state_dict(kept, strict=False)
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
