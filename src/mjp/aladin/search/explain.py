"""Why a picture matches: what each word adds to the score, and which patch answers it.

A word may consist of several pieces, each of which selects its own token. A word's score is the sum over its pieces, so
that under MrSw the scores of the words add up to the alignment score. The selected token says little about the place:
the encoders have mixed patches with patches and words with words. The map of a word is therefore computed from the word
encoded alone and from windows of the picture encoded alone (see windows), which takes the picture's file; its best
patch is drawn. Without the file, or with hidden positions, the map uses the mixed tokens.

A word points somewhere only if it names something, counts in the score (a weighted score says how much), and its map
has a peak.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.tokenizer import words_of
from mjp.aladin.search.windows import ZOOM, word_maps
from mjp.pictures.decode import first_readable

LEAST_WEIGHT = 0.5  # of the mean weight of the query's words
STOP_WORDS = frozenset(  # they name nothing that could be pointed to
    words_of(
        "a an the this that these those some and or but of on in at to by for from with without into onto over under "
        "near is are was were be being it its his her their he she they who which there as while"
    )
)
PEAK = 0.2  # how far the best value of a map must be above the median: a word that nothing answers has a flat map


class Word(NamedTuple):
    """A word of a query, explained for one picture."""

    text: str
    score: float  # what it adds to MrSw
    heat: Tensor  # (R,) how well every place matches
    patch: int  # the best one
    hidden: bool  # whether that patch has no place, because it was encoded under E_unk
    peaked: bool = True  # whether the word counts and that patch stands out: otherwise it points nowhere

    @property
    def place(self) -> int | None:
        """The patch that the word points to; None if it points nowhere."""
        return self.patch if self.peaked and not self.hidden else None


class Stored(NamedTuple):
    """A picture of an index: its codes, where its file is, whether positions were hidden when it was encoded, and the
    rows and columns of its patches."""

    codes: Codes
    paths: list[Path]
    masked: bool
    grid: tuple[int, int]


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
        file = _file(stored, model, max_pixels)
    if file is None:
        maps = [cosines[:, columns].max(1).values for _, columns in pieces]
    else:
        alone = word_maps(model, file, model.encode_texts([word for word, _ in pieces]), stored.grid)
        maps = [heat.masked_fill(padding[:, 0], -torch.inf) for heat in alone]
    best = [int(heat.argmax()) for heat in maps]
    weights = query.tokens[0][query.valid[0]].cpu().norm(dim=-1)  # all 1 if words are not weighted
    heavy = [bool(weights[columns].mean() >= LEAST_WEIGHT * weights.mean()) for _, columns in pieces]
    counts = [weighs and not is_stop_word(word) for weighs, (word, _) in zip(heavy, pieces, strict=True)]
    return [
        Word(word, score, heat, patch, bool(picture.unknown[0, patch]), count and has_peak(heat))
        for (word, _), score, heat, patch, count in zip(pieces, scores, maps, best, counts, strict=True)
    ]


def is_stop_word(word: str) -> bool:
    return word.lower() in STOP_WORDS


def has_peak(heat: Tensor) -> bool:
    """Whether the best patch of a map stands out from the others."""
    finite = heat[heat.isfinite()]
    return float(finite.max() - finite.median()) >= PEAK


def _file(stored: Stored, model: Aladin, max_pixels: int | None) -> Image.Image | None:
    """The picture; None if places are hidden, or no file can be read."""
    if stored.masked:
        return None
    return first_readable(stored.paths, max_pixels=max_pixels, at_least=2 * ZOOM * max(model.vision.size))


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
