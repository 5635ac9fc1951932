"""The parts of the loss: what captions and classes teach either head."""

import torch
from torch import Tensor

from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.alignment import align
from mjp.aladin.training.compared import Compared, Sides, in_one
from mjp.aladin.training.config import AladinTraining
from mjp.aladin.training.losses import graded, infonce, listnet, triplet

CLASS_WEIGHT = 0.5  # of the second lesson: captions come first


def alignment_scores(config: AladinTraining, model: Aladin, sides: Sides) -> Tensor:
    """S^a (B, C); a frozen alignment head does not learn."""
    patches, words = (side.tokens.detach() if config.phase == "distill" else side.tokens for side in sides)
    return align(patches, sides.pictures.valid, words, sides.texts.valid, mode=model.config.alignment)


def caption_losses(
    config: AladinTraining,
    model: Aladin,
    sides: Sides,
    same: Tensor,
    *,
    hardness: float,
    teacher_scale: float | None,
    guided: Tensor | None = None,
) -> dict[str, Tensor]:
    """The parts of the loss. None learns from its student."""
    hinge = {"margin": config.margin, "hardness": hardness}
    parts: dict[str, Tensor] = {}
    aligned = torch.zeros_like(same, dtype=torch.float32)
    if config.aligns:
        aligned = alignment_scores(config, model, sides)
    if config.phase != "distill":
        parts["align"] = (
            triplet(aligned, same, **hinge)
            if config.align_objective == "triplet"
            else infonce(model.log_align_scale.exp() * aligned, same)
        )
    if guided is not None:
        parts["guide"] = listnet(model.log_align_scale.exp() * aligned, guided)
    if config.phase == "align":
        return parts
    matched = sides.pictures.vector @ sides.texts.vector.T
    scaled = model.log_scale.exp() * matched
    if "distill" in config.objective:
        parts["distill"] = listnet(scaled, (teacher_scale or 1.0) * aligned)
    if "infonce" in config.objective:
        parts["infonce"] = infonce(scaled, same)
    if config.objective == "triplet":
        parts["triplet"] = triplet(matched, same, **hinge)
    return parts


def class_losses(
    config: AladinTraining, model: Aladin, captioned: Compared, lesson: Sides, relevance: Tensor
) -> dict[str, Tensor]:
    """What either head makes of classes, in the pictures of the step and in those of the lesson."""
    sides = Sides(in_one([captioned, lesson.pictures]), lesson.texts)
    parts: dict[str, Tensor] = {}
    if config.phase != "distill":
        aligned = alignment_scores(config, model, sides)
        parts["align_classes"] = CLASS_WEIGHT * graded(model.log_align_scale.exp() * aligned, relevance)
    if config.phase != "align":
        matched = sides.pictures.vector @ sides.texts.vector.T
        parts["match_classes"] = CLASS_WEIGHT * graded(model.log_scale.exp() * matched, relevance)
    return parts
