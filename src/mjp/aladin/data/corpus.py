"""One split of a captioned data set as training and evaluation read it, by number: tokens from disk, or pictures if the
backbone is being trained."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from mjp.aladin.data.captions import Captioned, all_captions, owners
from mjp.aladin.data.features import LivePictures, PictureFeatures, digest, text_features, word_rows
from mjp.aladin.data.token_file import TokenFile, fill, token_file
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes, Encoded, joined
from mjp.aladin.model.eval_mode import evaluating
from mjp.aladin.model.reference import PICTURES
from mjp.aladin.model.text import Words
from mjp.aladin.model.tokens import Tokens
from mjp.common.fingerprint import fingerprint
from mjp.common.progress import track

BATCH = 128
T = TypeVar("T", Tokens, Words, Encoded)


class Corpus:
    """Pictures and captions of a split, by number; captions are numbered consecutively."""

    def __init__(
        self,
        model: Aladin,
        data: list[Captioned],
        cache: Path,
        *,
        views: int = 1,
        workers: int,
        max_unreadable: int,
        live: bool = False,
    ) -> None:
        """`live`: the backbone will change, so pictures are read anew every time."""
        settings: dict[str, Any] = {"views": views, "workers": workers, "max_unreadable": max_unreadable}
        self.cache = cache
        self.views = views
        self.source = (LivePictures if live else PictureFeatures)(cache, data, model.vision, **settings)
        self.items = self.source.items
        self.texts = all_captions(self.items)
        self.owner = torch.tensor(owners(self.items))
        self.first = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(self.owner).cumsum(0)]).tolist()
        self.word_file: TokenFile | None = None
        if model.pieces is None:  # the text encoder is frozen: its tokens are computed only once
            self.word_file = text_features(cache, self.texts, model.frozen_text)

    @property
    def live(self) -> LivePictures | None:
        return self.source if isinstance(self.source, LivePictures) else None

    @property
    def features(self) -> PictureFeatures:
        assert isinstance(self.source, PictureFeatures)
        return self.source

    def token_batches(self, model: Aladin, batches: list[list[int]]) -> Iterator[Tokens]:
        """Tokens of batches of pictures: from disk, or by the model's backbone as it is now."""
        if self.live is None:
            yield from map(self.tokens, batches)
        else:
            pictures = self.live.batches([[(number, 0) for number in batch] for batch in batches])
            yield from map(model.vision.tokens, pictures)

    def tokens(self, numbers: list[int], views: list[int] | None = None) -> Tokens:
        """From disk."""
        views = views or [0] * len(numbers)
        return self.features.read([self.features.place(n, view) for n, view in zip(numbers, views, strict=True)])

    def words(self, model: Aladin, captions: list[int]) -> Words:
        if self.word_file is not None:
            return Words(*self.word_file.read(captions))
        return model.words([self.texts[n] for n in captions])

    def same(self, numbers: list[int], captions: list[int]) -> Tensor:
        """(B, C): whether the caption is one of the picture's."""
        return torch.tensor(numbers).unsqueeze(1) == self.owner[captions]


class TeacherTokens:
    """Encoder outputs of a frozen teacher on a corpus, on disk: phase 2 never runs its encoders again."""

    def __init__(self, teacher: Aladin, corpus: Corpus) -> None:
        self.corpus = corpus
        width = teacher.config.width
        # its matching head and scales do not affect what the encoders return
        weights = {n: v for n, v in teacher.state_dict().items() if not n.startswith(("matching.", "log_"))}
        self.teacher = fingerprint(weights)
        pictures = {"kind": "teacher-pictures", "model": self.teacher, "pictures": corpus.features.key}
        texts = {"kind": "teacher-texts", "model": self.teacher, "texts": digest(corpus.texts)}
        self.pictures = token_file(corpus.cache, pictures, width)
        self.texts = token_file(corpus.cache, texts, width)
        with torch.no_grad(), evaluating(teacher):
            self._fill(teacher)

    def _fill(self, teacher: Aladin) -> None:
        corpus, device = self.corpus, teacher.log_scale.device
        rows = [corpus.features.place(n, view) for view in range(corpus.views) for n in range(len(corpus.items))]

        def pictures(start: int, stop: int) -> list[Tensor]:
            return word_rows(Words(*teacher.encode_tokens(on(device, corpus.features.read(rows[start:stop])))))

        def texts(start: int, stop: int) -> list[Tensor]:
            return word_rows(Words(*teacher.encode_words(on(device, corpus.words(teacher, list(range(start, stop)))))))

        fill(self.pictures, len(rows), pictures, BATCH, "teacher's pictures")
        fill(self.texts, len(corpus.texts), texts, BATCH, "teacher's texts")

    def read(self, numbers: list[int], views: list[int], captions: list[int]) -> tuple[Encoded, Encoded]:
        places = [view * len(self.corpus.items) + n for n, view in zip(numbers, views, strict=True)]
        return Encoded(*self.pictures.read(places)), Encoded(*self.texts.read(captions))


def encode_corpus(model: Aladin, corpus: Corpus) -> tuple[Codes, Codes]:
    """Codes of every picture, each encoded once, and of every caption."""
    device, numbers = model.log_scale.device, _parts(range(len(corpus.items)))
    with torch.no_grad(), evaluating(model):
        tokens = track(corpus.token_batches(model, numbers), "encoding pictures", total=len(numbers))
        parts = [model.codes(on(device, batch)) for batch in tokens]
    return joined(parts), encode_captions(model, corpus)


def some_vectors(model: Aladin, corpus: Corpus, count: int = PICTURES) -> Tensor:
    """(at most `count`, D): vectors of pictures spread over the corpus, without the class channel's part."""
    numbers = torch.linspace(0, len(corpus.items) - 1, min(count, len(corpus.items))).long().tolist()
    batches = [numbers[k : k + BATCH] for k in range(0, len(numbers), BATCH)]
    device, width = model.log_scale.device, model.embedding or model.config.width
    tokens = corpus.token_batches(model, batches)
    return torch.cat([model.codes(on(device, batch)).vector[:, :width].cpu() for batch in tokens])


def encode_captions(model: Aladin, corpus: Corpus) -> Codes:
    device, texts = model.log_scale.device, range(len(corpus.texts))
    with torch.no_grad(), evaluating(model):
        parts = [model.codes(on(device, corpus.words(model, part))) for part in batches(texts, "encoding captions")]
    return joined(parts)


def on(device: torch.device, batch: T) -> T:
    """The batch on that device."""
    return type(batch)(*(tensor.to(device, non_blocking=True) for tensor in batch))


def batches(numbers: range, what: str) -> Iterator[list[int]]:
    """The numbers in batches, with progress."""
    return track(_parts(numbers), what)


def _parts(numbers: range) -> list[list[int]]:
    return [list(numbers[i : i + BATCH]) for i in range(0, len(numbers), BATCH)]
