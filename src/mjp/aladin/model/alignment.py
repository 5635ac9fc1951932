"""The alignment score: how well the patches of a picture match the words of a text.

    a_rj = cos(v_r, w_j)
    MrSw    S(i, c) = Σ_j max_r a_rj         best patch of every word, summed over words
    MwSr    S(i, c) = Σ_r max_j a_rj         best word of every patch, summed over patches
    sym     the sum of both
    MrAVGw  MrSw divided by the number of words
    weighted  S(i, c) = Σ_j α_j max_r a_rj   the text encoder says how much a word counts; Σ_j α_j = 1

Padded words are dropped before the matrix product, padded patches are −inf before the maximum: neither counts,
and every real word and patch does. The product is computed in chunks of pictures; (B, C, R, L) never exists as a whole.
"""

from typing import NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mjp.aladin.model.config import Alignment
from mjp.common.errors import InputError

MAX_SIMILARITIES = 2**23  # held at once: 32 MB


class Sentence(NamedTuple):
    """The words of C captions without padding."""

    words: Tensor  # (W, D)
    owner: Tensor  # (W,) int64: the caption of each word
    lengths: Tensor  # (C,): words per caption


def align(
    patches: Tensor,
    patch_valid: Tensor,
    words: Tensor,
    word_valid: Tensor,
    *,
    mode: Alignment = "MrSw",
    unit: bool = False,
    chunk: int = MAX_SIMILARITIES,
) -> Tensor:
    """Scores (B, C) of pictures, patches (B, R, D), against captions, words (C, L, D); the masks say what is real.

    `unit`: all tokens have the right length already; normalising them takes as long as their product.
    """
    if mode not in get_args(Alignment):
        raise InputError(f"alignment {mode!r} is unknown: choose one of {', '.join(get_args(Alignment))}")
    sentence = _unpadded(words, word_valid)
    if not unit:
        patches = normalize(patches, dim=-1)
    if not unit and mode != "weighted":  # the length of a word is its weight
        sentence = sentence._replace(words=normalize(sentence.words, dim=-1))
    size = max(1, chunk // max(1, patches.shape[1] * len(sentence.words)))
    parts = [
        _scores(patches[i : i + size], patch_valid[i : i + size], sentence, mode) for i in range(0, len(patches), size)
    ]
    return torch.cat(parts) if parts else words.new_zeros(0, len(words))


def _unpadded(words: Tensor, valid: Tensor) -> Sentence:
    owner = torch.arange(len(words), device=words.device).unsqueeze(1).expand_as(valid)
    return Sentence(words[valid], owner[valid], valid.sum(1))


def _cosines(patches: Tensor, valid: Tensor, words: Tensor) -> Tensor:
    """(b, R, W), −inf at padded patches."""
    cosines = patches @ words.T
    if valid.is_cpu and bool(valid.all()):  # nothing to fill, which halves the time
        return cosines
    return cosines.masked_fill(~valid.unsqueeze(-1), -torch.inf)


def _scores(patches: Tensor, valid: Tensor, sentence: Sentence, mode: Alignment) -> Tensor:
    cosines = _cosines(patches, valid, sentence.words)  # (b, R, W)
    if mode == "MwSr":
        return _best_words(cosines, valid, sentence)
    # (b, W). amax is quicker, but splits the gradient between equal values
    best = cosines.max(1).values if cosines.requires_grad else cosines.amax(1)
    total = best.new_zeros(len(best), len(sentence.lengths)).index_add(1, sentence.owner, best)  # (b, C)
    if mode == "MrAVGw":
        return total / sentence.lengths
    return total + _best_words(cosines, valid, sentence) if mode == "sym" else total


def _best_words(cosines: Tensor, valid: Tensor, sentence: Sentence) -> Tensor:
    owner = sentence.owner.expand_as(cosines)
    empty = cosines.new_zeros(*cosines.shape[:2], len(sentence.lengths))  # (b, R, C)
    best = empty.scatter_reduce(2, owner, cosines, "amax", include_self=False)
    return best.masked_fill(~valid.unsqueeze(-1), 0).sum(1)
