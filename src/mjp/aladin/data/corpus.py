"""One split of a captioned data set as training and evaluation read it: tokens from disk, by number."""

from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad
from tqdm import tqdm

from mjp.aladin.data.captions import Captioned, all_captions, owners
from mjp.aladin.data.features import PictureFeatures, TokenFile, digest, fill, text_features, token_file, word_rows
from mjp.aladin.model.aladin import Aladin, Codes, Encoded, evaluating
from mjp.aladin.model.text import Words
from mjp.aladin.model.tokens import Tokens
from mjp.common.fingerprint import fingerprint

BATCH = 128
T = TypeVar("T", Tokens, Words, Encoded)


class Corpus:
    """Pictures and captions of a split, each known by its number; captions are counted through."""

    def __init__(
        self, model: Aladin, data: list[Captioned], cache: Path, *, views: int = 1, workers: int, max_unreadable: int
    ) -> None:
        settings: dict[str, Any] = {"views": views, "workers": workers, "max_unreadable": max_unreadable}
        self.cache, self.views = cache, views
        self.features = PictureFeatures(cache, data, model.vision, **settings)
        self.items = self.features.items
        self.texts, self.owner = all_captions(self.items), torch.tensor(owners(self.items))
        self.first = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(self.owner).cumsum(0)]).tolist()
        self.word_file: TokenFile | None = None
        if model.pieces is None:  # MiniLM is frozen: its tokens need to be computed only once
            source = model.minilm
            facts = {"source": source.weights}
            self.word_file = text_features(cache, self.texts, facts, source, source.width)

    def tokens(self, numbers: list[int], views: list[int] | None = None) -> Tokens:
        chosen = views or [0] * len(numbers)
        return self.features.read([self.features.place(n, view) for n, view in zip(numbers, chosen, strict=True)])

    def words(self, model: Aladin, captions: list[int]) -> Words:
        if self.word_file is not None:
            return Words(*self.word_file.read(captions))
        return model.words([self.texts[n] for n in captions])

    def same(self, numbers: list[int], captions: list[int]) -> Tensor:
        """(B, C): whether the caption is one of the picture's."""
        return torch.tensor(numbers).unsqueeze(1) == self.owner[captions]


class TeacherTokens:
    """What a frozen model's encoders say about a corpus, on disk: phase 2 never runs them again."""

    def __init__(self, teacher: Aladin, corpus: Corpus) -> None:
        self.corpus, width = corpus, teacher.config.width
        # a student in it, or its scale, changes nothing in what the encoders say
        weights = {n: v for n, v in teacher.state_dict().items() if not n.startswith(("matching.", "log_"))}
        self.teacher = fingerprint(weights)
        pictures = {"kind": "teacher-pictures", "model": self.teacher, "pictures": corpus.features.key}
        texts = {"kind": "teacher-texts", "model": self.teacher, "texts": digest(corpus.texts)}
        self.pictures, self.texts = (token_file(corpus.cache, key, width) for key in (pictures, texts))
        with torch.no_grad(), evaluating(teacher):
            self._fill(teacher)

    def _fill(self, teacher: Aladin) -> None:
        corpus, device = self.corpus, teacher.log_scale.device
        rows = [corpus.features.place(n, view) for view in range(corpus.views) for n in range(len(corpus.items))]

        def pictures(start: int, stop: int) -> list[Tensor]:
            found = teacher.encode_tokens(on(device, corpus.features.read(rows[start:stop])))
            return word_rows(Words(*found))

        def texts(start: int, stop: int) -> list[Tensor]:
            found = teacher.encode_words(on(device, corpus.words(teacher, list(range(start, stop)))))
            return word_rows(Words(*found))

        fill(self.pictures, len(rows), pictures, BATCH, "teacher's pictures")
        fill(self.texts, len(corpus.texts), texts, BATCH, "teacher's texts")

    def read(self, numbers: list[int], views: list[int], captions: list[int]) -> tuple[Encoded, Encoded]:
        places = [view * len(self.corpus.items) + n for n, view in zip(numbers, views, strict=True)]
        return Encoded(*self.pictures.read(places)), Encoded(*self.texts.read(captions))


def encode_corpus(model: Aladin, corpus: Corpus) -> tuple[Codes, Codes]:
    """Codes of every picture, each encoded once, and of every caption."""
    device, pictures = model.log_scale.device, range(len(corpus.items))
    with torch.no_grad(), evaluating(model):
        seen = [model.codes(on(device, corpus.tokens(part))) for part in batches(pictures, "encoding pictures")]
    return joined(seen), encode_captions(model, corpus)


def encode_captions(model: Aladin, corpus: Corpus) -> Codes:
    device, texts = model.log_scale.device, range(len(corpus.texts))
    with torch.no_grad(), evaluating(model):
        read = [model.codes(on(device, corpus.words(model, part))) for part in batches(texts, "encoding captions")]
    return joined(read)


def joined(parts: list[Codes]) -> Codes:
    """One batch out of several, padded to the longest."""
    longest = max(part.tokens.shape[1] for part in parts)
    wider = []
    for part in parts:
        more = longest - part.tokens.shape[1]
        tokens = pad(part.tokens, (0, 0, 0, more))
        wider.append(Codes(part.vector, tokens, pad(part.valid, (0, more)), pad(part.unknown, (0, more))))
    return Codes(*(torch.cat(column) for column in zip(*wider, strict=True)))


def on(device: torch.device, batch: T) -> T:
    """The batch on that device."""
    return type(batch)(*(tensor.to(device, non_blocking=True) for tensor in batch))


def batches(numbers: range, what: str) -> "tqdm[list[int]]":
    """The numbers in batches, behind a progress bar."""
    found = [list(numbers[i : i + BATCH]) for i in range(0, len(numbers), BATCH)]
    return tqdm(found, desc=what, leave=False, disable=None)
