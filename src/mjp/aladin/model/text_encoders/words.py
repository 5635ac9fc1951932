"""A table of word vectors, initialised from a language model and then trained with the model.

Before training, MiniLM (mjp[minilm]) is asked once for the vector of every word of its own vocabulary, of every word
that occurs twice in the captions, and of the shorter pieces that other words fall back to; their principal components
are kept. A word that no caption contains keeps its initial vector, near the words it resembles, so the encoder trained
on those generalises to it. MiniLM is not needed afterwards.
"""

import re
from collections import Counter

import torch
from torch import Tensor

from mjp.aladin.model.config import AladinConfig
from mjp.aladin.model.text import PieceTable
from mjp.aladin.model.text_encoders.minilm import MiniLM
from mjp.aladin.model.tokenizer import START, Tokenizer, train_tokenizer, words_of

BATCH = 256
DEVIATION = 0.5  # large beside what training adds: words that are trained do not leave the others behind


def frozen_width(config: AladinConfig) -> None:
    return None


def create(config: AladinConfig, captions: list[str]) -> PieceTable:
    language_model = MiniLM()
    tokenizer = word_tokenizer(captions, config.vocabulary, language_model)
    table = PieceTable(tokenizer, config.word_width, drop=config.word_drop)
    table.table.weight.data = word_vectors(tokenizer, language_model, config.word_width)
    return table


def restore(config: AladinConfig, description: str) -> PieceTable:
    return PieceTable(Tokenizer.from_json(description), config.word_width, drop=config.word_drop)


def word_tokenizer(captions: list[str], pieces: int, language_model: MiniLM) -> Tokenizer:
    """Word pieces of the captions, and the words that stay whole."""
    counts = Counter(word for caption in captions for word in words_of(caption))
    whole = {word for word in language_model.vocabulary() if re.fullmatch("[a-z]{2,}", word)}
    whole |= {word for word, count in counts.items() if count > 1}
    return train_tokenizer(captions, pieces, words=sorted(whole))


def word_vectors(tokenizer: Tokenizer, language_model: MiniLM, width: int) -> Tensor:
    """(V, width): MiniLM's vector of each piece on its own, projected onto the principal components.

    Padding and the unknown piece are zero, the mean of all.
    """
    texts = [piece.removeprefix(START) for piece in tokenizer.pieces[2:]]
    batches = [language_model(texts[k : k + BATCH]).cls for k in range(0, len(texts), BATCH)]
    vectors = torch.cat(batches).double().cpu()
    vectors = vectors - vectors.mean(0)
    components = torch.linalg.eigh(vectors.T @ vectors).eigenvectors.flip(1)[:, :width]  # (384, width), largest first
    projected = vectors @ components
    return torch.cat([projected.new_zeros(2, width), DEVIATION * projected / projected.std()]).float()
