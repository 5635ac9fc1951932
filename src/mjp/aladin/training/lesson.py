"""Classes as a second lesson beside captions: pictures of classes, texts about them, and what is true of what.

Every step some classes are drawn. Each brings one picture of itself and one text: a name, an everyday kind, or its
definition. How true a text is of a picture, a training picture of the step or one of a class, is the backbone's own
posterior, summed over the classes of the text. So both heads learn a thousand things that few captions mention.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mjp.aladin.data.class_pictures import ClassPictures
from mjp.aladin.data.classes import CLASSES, draw_text, membership
from mjp.aladin.data.corpus import Corpus
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.tokens import Tokens
from mjp.common.errors import InputError

VARIANTS = 4  # pictures of every class


class Lesson(NamedTuple):
    """Pictures and texts of one step."""

    tokens: Tokens
    texts: list[str]
    relevance: Tensor  # (captioned pictures of the step + pictures of classes, texts)


class ClassLessons:
    """Draws lessons of `size` classes."""

    def __init__(self, model: Aladin, corpus: Corpus, size: int) -> None:
        classes = model.vision.classes
        if classes is None or classes.classifier.out_features != CLASSES:
            raise InputError(
                f"--classes needs a backbone with ImageNet's {CLASSES} classes: write --model.backbone lite0:classes"
            )
        self.classes = classes
        self.pictures = ClassPictures(corpus.cache, corpus, classes, variants=VARIANTS)
        self.corpus = corpus
        self.size = size

    def draw(self, captioned: list[int], views: list[int], generator: torch.Generator) -> Lesson:
        numbers = torch.randperm(CLASSES, generator=generator)[: self.size].tolist()
        variants = torch.randint(VARIANTS, (self.size,), generator=generator).tolist()
        tokens = self.pictures.read(numbers, variants)
        texts = [draw_text(number, generator) for number in numbers]
        whole = torch.cat([self.corpus.tokens(captioned, views).cls, tokens.cls])
        relevance = self.classes.posterior(whole).cpu() @ membership(texts).T
        return Lesson(tokens, [text.text for text in texts], relevance.clamp(max=1))
