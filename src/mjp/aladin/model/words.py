"""Where a table of words begins: at what a language model says about each of them.

Before training MiniLM (mjp[minilm]) is asked once for the vector of every word of its own vocabulary, of every word
that occurs twice in the captions, and of the shorter pieces that any other word falls back to; their principal
directions are kept. A word that no caption holds stays there, near the words it resembles, so the encoder that learned
from those has an idea of it. Afterwards MiniLM is not needed.
"""

import re
from collections import Counter

import torch
from torch import Tensor

from mjp.aladin.model.text import MiniLM
from mjp.aladin.model.tokenizer import START, Tokenizer, train_tokenizer, words_of

BATCH = 256
DEVIATION = 0.5  # large beside what training adds: words that are trained do not leave the others behind


def word_tokenizer(captions: list[str], pieces: int, source: MiniLM) -> Tokenizer:
    """Pieces of the captions' words, and the words that are one piece whatever they are made of."""
    counts = Counter(word for caption in captions for word in words_of(caption))
    whole = {word for word in source.vocabulary() if re.fullmatch("[a-z]{2,}", word)}
    whole |= {word for word, count in counts.items() if count > 1}
    return train_tokenizer(captions, pieces, words=sorted(whole))


def word_vectors(tokenizer: Tokenizer, source: MiniLM, width: int) -> Tensor:
    """(V, width): what MiniLM says about each piece alone, in its principal directions around the mean.

    Padding and the unknown piece are zero, the mean of all.
    """
    texts = [piece.removeprefix(START) for piece in tokenizer.pieces[2:]]
    found = torch.cat([source(texts[k : k + BATCH]).cls for k in range(0, len(texts), BATCH)]).double().cpu()
    found = found - found.mean(0)
    directions = torch.linalg.eigh(found.T @ found).eigenvectors.flip(1)[:, :width]  # (384, width), largest first
    vectors = found @ directions
    return torch.cat([vectors.new_zeros(2, width), DEVIATION * vectors / vectors.std()]).float()
