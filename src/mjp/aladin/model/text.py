"""What every text encoder has in common: `Words`, the interface, and a trained table of word pieces.

A text encoder turns texts into `Words`: one token for the whole text, one per piece, and which pieces are real. The
transformer that follows is the same for all of them. A text without a word is refused.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from mjp.aladin.model.tokenizer import UNKNOWN, Tokenizer, words_of

UNKNOWN_PIECES = {UNKNOWN, UNKNOWN.upper()}  # how a table and MiniLM name a piece outside their vocabulary
MAX_PIECES = 64  # the rest of a longer text is not read


class Words(NamedTuple):
    """Tokens of a batch of texts."""

    cls: Tensor  # (C, D)
    words: Tensor  # (C, L, D)
    valid: Tensor  # (C, L) bool: False is padding


class FrozenTextEncoder(Protocol):
    """An encoder that is not trained: its tokens can be cached on disk, its weights are not saved with the model."""

    width: int

    @property
    def weights(self) -> str:
        """Fingerprint of its weights."""

    def __call__(self, texts: list[str]) -> Words: ...

    def pieces(self, text: str) -> list[str]:
        """The pieces that the word tokens stand for, in their order."""


class TrainedTextEncoder(nn.Module, ABC):
    """An encoder that is trained and saved with the model."""

    width: int

    @property
    @abstractmethod
    def description(self) -> str:
        """JSON with what `restore` needs to build it again, beside its weights."""

    @abstractmethod
    def forward(self, texts: list[str]) -> Words: ...

    @abstractmethod
    def pieces(self, text: str) -> list[str]:
        """The pieces that the word tokens stand for, in their order."""


class PieceTable(TrainedTextEncoder):
    """A vector per piece and per place, trained on the captions."""

    def __init__(self, tokenizer: Tokenizer, width: int, *, drop: float = 0.0) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.width = width
        self.drop = drop
        self.table = nn.Embedding(len(tokenizer), width)
        self.places = nn.Parameter(torch.randn(MAX_PIECES, width) * 0.02)
        self.cls = nn.Parameter(torch.randn(width) * 0.02)
        nn.init.normal_(self.table.weight, std=0.1)

    @property
    def description(self) -> str:
        return self.tokenizer.to_json()

    def forward(self, texts: list[str]) -> Words:
        numbers, valid = padded([torch.tensor(self.tokenizer.encode(text)[:MAX_PIECES]) for text in texts])
        numbers, valid = numbers.to(self.cls.device), valid.to(self.cls.device)
        if self.training and self.drop:  # some pieces become unknown, so that the unknown piece learns a meaning
            hidden = torch.rand(numbers.shape, device=numbers.device) < self.drop
            numbers = numbers.masked_fill(hidden & valid, 1)
        words = self.table(numbers) + self.places[: numbers.shape[1]]
        return Words(self.cls.expand(len(texts), -1), words, valid)

    def pieces(self, text: str) -> list[str]:
        return [self.tokenizer.pieces[number] for number in self.tokenizer.encode(text)[:MAX_PIECES]]


def unknown_words(text: str, pieces: Callable[[str], list[str]]) -> list[str]:
    """The words of a text with a letter outside the vocabulary; `pieces` splits a word as its text encoder does."""
    return [word for word in dict.fromkeys(words_of(text)) if UNKNOWN_PIECES & set(pieces(word))]


def padded(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Rows of different lengths (L_i, ...) as one tensor (C, L, ...) padded with zeros, and which entries are real."""
    lengths = torch.tensor([len(row) for row in rows])
    valid = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), valid
