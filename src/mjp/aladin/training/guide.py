"""A trained model that teaches another one's alignment head with its scores of the pictures and captions of a step.

Its text encoder may differ, as when slow MiniLM teaches a fast table of words. Only scores are compared, so the two
need not split a sentence into the same pieces.
"""

from typing import Any

import torch
from torch import Tensor

from mjp.aladin.data.captions import Captioned
from mjp.aladin.data.corpus import Corpus, TeacherTokens, on
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.training.config import AladinTraining
from mjp.aladin.training.losses import calibrated_scale

CALIBRATION_BLOCKS = 4


class Guide:
    """Alignment scores from tokens on disk, times the calibrated scale."""

    def __init__(self, config: AladinTraining, train: list[Captioned], dev: list[Captioned], device: torch.device):
        assert config.guide is not None
        self.model, self.device = Aladin.load(config.guide).to(device), device
        common: dict[str, Any] = {"workers": config.workers, "max_unreadable": config.max_unreadable}
        self.tokens = TeacherTokens(self.model, Corpus(self.model, train, config.cache, views=config.views, **common))
        self.scale = config.teacher_scale
        if self.scale is None:
            self.scale = calibrate(self.model, Corpus(self.model, dev, config.cache, **common), config.batch_size)

    @torch.no_grad()
    def scores(self, numbers: list[int], views: list[int], captions: list[int]) -> Tensor:
        """(B, C), scaled."""
        pictures, texts = (on(self.device, encoded) for encoded in self.tokens.read(numbers, views, captions))
        vector = pictures.cls.new_zeros(0)  # alignment does not use it
        codes = [
            Codes(vector, self.model.aligned(encoded, text=text), encoded.valid, ~encoded.valid)
            for encoded, text in ((pictures, False), (texts, True))
        ]
        assert self.scale is not None
        return self.scale * self.model.alignment(*codes)


@torch.no_grad()
def calibrate(model: Aladin, dev: Corpus, batch: int) -> float:
    """The scale T of a teacher by the dev pairs, in blocks of the size of a step."""
    device, blocks, size = model.log_scale.device, [], min(batch, len(dev.items))
    starts = range(0, min(CALIBRATION_BLOCKS * size, len(dev.items) - size + 1), size)
    parts = [list(range(start, start + size)) for start in starts]
    for numbers, tokens in zip(parts, dev.token_batches(model, parts), strict=True):
        captions = [dev.first[n] for n in numbers]
        words = dev.words(model, captions)
        scores = model.alignment(model.codes(on(device, tokens)), model.codes(on(device, words)))
        blocks.append((scores, dev.same(numbers, captions).to(device)))
    return calibrated_scale(blocks)
