"""The alignment score: which patch answers which word, and how well.

    a_rj = cos(v_r, w_j)
    MrSw    S(i, c) = Σ_j max_r a_rj         best patch of every word, summed over words
    MwSr    S(i, c) = Σ_r max_j a_rj         best word of every patch, summed over patches
    sym     the sum of both
    MrAVGw  MrSw divided by the number of words

Padded words are left out before the matrix product, padded patches are −inf before the maximum: neither can count, and
every real word and patch does. The product is taken in chunks of pictures; (B, C, R, L) never exists as a whole.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mjp.common.errors import InputError

Mode = Literal["MrSw", "MwSr", "sym", "MrAVGw"]
CHUNK = 2**23  # similarities held at once: 32 MB


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
    mode: Mode = "MrSw",
    unit: bool = False,
    chunk: int = CHUNK,
) -> Tensor:
    """Scores (B, C) of pictures, patches (B, R, D), against captions, words (C, L, D); the masks say what is real.

    `unit`: all tokens have length 1, and need not be brought to it, which would take as long as their product.
    """
    if mode not in get_args(Mode):
        raise InputError(f"alignment {mode!r} is unknown: choose one of {', '.join(get_args(Mode))}")
    sentence = _unpadded(words, word_valid)
    if not unit:
        patches, sentence = normalize(patches, dim=-1), sentence._replace(words=normalize(sentence.words, dim=-1))
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
    if valid.is_cpu and bool(valid.all()):  # nothing to fill: half of the time is saved
        return cosines
    return cosines.masked_fill(~valid.unsqueeze(-1), -torch.inf)


def _scores(patches: Tensor, valid: Tensor, sentence: Sentence, mode: Mode) -> Tensor:
    cosines = _cosines(patches, valid, sentence.words)  # (b, R, W)
    if mode == "MwSr":
        return _best_words(cosines, valid, sentence)
    # (b, W). The same twice: amax is quicker, but of equals it would give each a part of the gradient
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
