"""Why a picture matches: what each word adds to the score, and which patch answers it.

A word may consist of several pieces, each of which selects its own token. A word's score is the sum over its pieces, so
that under MrSw the scores of the words add up to the alignment score. The selected token says little about the place:
the encoders have mixed patches with patches and words with words. The map of a word is therefore computed from the word
encoded alone and from patches encoded alone, each as if it were the whole picture, which takes the picture's file; its
best patch is drawn. Without the file, or with hidden positions, the map uses the mixed tokens.

A word points somewhere only if it counts in the score (a weighted score says how much) and its map has a peak.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.tokenizer import words_of
from mjp.aladin.model.tokens import Tokens
from mjp.pictures.decode import first_readable

LEAST_WEIGHT = 0.5  # of the mean weight of the query's words
PEAK = 0.15  # how far the best cosine of a map must be above the median: a word that nothing answers has a flat map


class Word(NamedTuple):
    """A word of a query, explained for one picture."""

    text: str
    score: float  # what it adds to MrSw
    heat: Tensor  # (R,) cosines with every patch
    patch: int  # the best one
    hidden: bool  # whether that patch has no place, because it was encoded under E_unk
    peaked: bool = True  # whether the word counts and that patch stands out: otherwise it points nowhere


class Stored(NamedTuple):
    """A picture of an index: its codes, where its file is, and whether positions were hidden when it was encoded."""

    codes: Codes
    paths: list[Path]
    masked: bool


def explain(
    stored: Stored,
    model: Aladin,
    text: str,
    query: Codes,
    *,
    max_pixels: int | None = None,
    decoding: AbstractContextManager[object] | None = None,
) -> list[Word]:
    """How each word of a query matches a picture; `decoding` is held while its file is decoded."""
    picture = stored.codes
    pieces = list(pieces_of_words(model, text))
    padding = ~picture.valid[0].unsqueeze(1)
    tokens = normalize(picture.tokens[0], dim=-1)  # float16 leaves them not quite of length 1
    cosines = (tokens @ query.tokens[0][query.valid[0]].cpu().T).masked_fill(padding, -torch.inf)  # (R, L)
    scores = [float(cosines[:, columns].max(0).values.sum()) for _, columns in pieces]
    with decoding or nullcontext():
        alone = _patches_of_file(stored, model, max_pixels)
    if alone is None:
        maps = [cosines[:, columns].max(1).values for _, columns in pieces]
    else:
        words = model.encode_texts([word for word, _ in pieces])
        maps = [(alone @ w[valid].cpu().T).amax(1) for w, valid in zip(words.tokens, words.valid, strict=True)]
        maps = [heat.masked_fill(padding[:, 0], -torch.inf) for heat in maps]
    best = [int(heat.argmax()) for heat in maps]
    weights = query.tokens[0][query.valid[0]].cpu().norm(dim=-1)  # all 1 if words are not weighted
    counts = [bool(weights[columns].mean() >= LEAST_WEIGHT * weights.mean()) for _, columns in pieces]
    return [
        Word(word, score, heat, patch, bool(picture.unknown[0, patch]), count and has_peak(heat))
        for (word, _), score, heat, patch, count in zip(pieces, scores, maps, best, counts, strict=True)
    ]


def has_peak(heat: Tensor) -> bool:
    """Whether the best patch of a map stands out from the others."""
    finite = heat[heat.isfinite()]
    return float(finite.max() - finite.median()) >= PEAK


def _patches_of_file(stored: Stored, model: Aladin, max_pixels: int | None) -> Tensor | None:
    """(R, A) tokens of patches encoded alone; None if places are hidden, or no file can be read."""
    if stored.masked:
        return None
    picture = first_readable(stored.paths, max_pixels=max_pixels, at_least=2 * max(model.vision.size))
    if picture is None:
        return None
    return patches_alone(model, model.vision.tokens(model.vision.prepare(picture).unsqueeze(0)))[0].cpu()


def patches_alone(model: Aladin, tokens: Tokens) -> Tensor:
    """(B, R, A): every patch encoded as the only one of its picture."""
    batch, count, _ = tokens.patches.shape
    device = model.log_scale.device
    parts = [part.to(device).flatten(0, 1).unsqueeze(1) for part in tokens[1:]]  # (B·R, 1, ...)
    cls = tokens.cls.to(device).repeat_interleave(count, 0)
    return model.codes(Tokens(cls, *parts)).tokens.view(batch, count, -1)


def pieces_of_words(model: Aladin, text: str) -> Iterator[tuple[str, list[int]]]:
    """The words of a text and the numbers of their pieces, as far as the model reads."""
    start, total = 0, len(model.piece_names(text))
    for word in words_of(text):
        end = min(start + len(model.piece_names(word)), total)
        if end > start:
            yield word, list(range(start, end))
        start = end


def unread_words(model: Aladin, text: str) -> int:
    """How many words at the end of a text the model does not read."""
    return len(words_of(text)) - sum(1 for _ in pieces_of_words(model, text))
