"""Pictures and captions of a step into what the losses compare."""

from contextlib import nullcontext

import torch
from torch import Tensor

from mjp.aladin.data.corpus import Corpus, TeacherTokens, on
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Encoded
from mjp.aladin.model.eval_mode import evaluating
from mjp.aladin.model.tokens import Tokens, some_patches
from mjp.aladin.training.compared import Compared, Sides, compare
from mjp.aladin.training.config import AladinTraining
from mjp.aladin.training.lesson import Lesson


class Embedder:
    """Embeds by number; `frozen`: the encoder outputs of a teacher, in phase distill."""

    def __init__(self, config: AladinTraining, model: Aladin, corpus: Corpus, frozen: TeacherTokens | None) -> None:
        self.config = config
        self.model = model
        self.corpus = corpus
        self.frozen = frozen

    def __call__(
        self, numbers: list[int], views: list[int], captions: list[int], images: Tensor | None = None
    ) -> Sides:
        """Both sides, with gradients; `images` are the pictures themselves, for a backbone that is trained."""
        model, device = self.model, self.model.log_scale.device
        if self.frozen is not None:
            pictures, texts = self.frozen.read(numbers, views, captions)
            return self._sides(on(device, pictures), on(device, texts))
        seen = self.corpus.tokens(numbers, views) if images is None else model.vision.live_tokens(images)
        tokens = on(device, self._some(seen))
        words = on(device, self.corpus.words(model, captions))
        own = model.pair_vectors(tokens), model.pair_vectors(words)
        return self._sides(model.encode_tokens(tokens), model.encode_words(words), own)

    def lesson(self, lesson: Lesson) -> Sides:
        """Pictures of classes and texts about them."""
        model, frozen = self.model, self.frozen is not None
        with torch.set_grad_enabled(not frozen), evaluating(model) if frozen else nullcontext():
            tokens = on(model.log_scale.device, self._some(lesson.tokens))
            encoded = model.encode_tokens(tokens), model.encode_words(model.words(lesson.texts))
        return self._sides(*encoded)

    def _some(self, tokens: Tokens) -> Tokens:
        """A share of the patches while encoders are trained; a frozen teacher has seen all of them."""
        return tokens if self.frozen is not None else some_patches(tokens, self.config.patch_share)

    def _sides(
        self, pictures: Encoded, texts: Encoded, vectors: tuple[Tensor | None, Tensor | None] = (None, None)
    ) -> Sides:
        return Sides(
            self._compare(pictures, text=False, vector=vectors[0]), self._compare(texts, text=True, vector=vectors[1])
        )

    def _compare(self, encoded: Encoded, *, text: bool, vector: Tensor | None) -> Compared:
        matches = self.config.phase != "align"
        return compare(self.model, encoded, text=text, aligns=self.config.aligns, matches=matches, vector=vector)
