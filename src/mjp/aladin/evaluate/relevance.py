"""Graded relevance: NDCG with ROUGE-L between captions, or with human judgements.

Recall knows one right answer; graded relevance also rewards a picture that fits the query almost as well.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mjp.aladin.data.captions import Captioned
from mjp.aladin.model.tokenizer import words_of
from mjp.common.errors import InputError

BETA = 1.2  # how much more recall weighs than precision, as the COCO caption server has it
BITS = 63  # longest caption in words that is compared whole


def ndcg(scores: Tensor, relevance: Tensor, k: int = 25) -> Tensor:
    """(rows,) of Σ relevance/log2(1 + place) over the k best, divided by the best possible; NaN if nothing is relevant.

    Equal scores are put in their worst order.
    """
    k = min(k, scores.shape[1])
    relevance = relevance.double()
    worst = relevance.argsort(dim=1, stable=True)  # ascending, so that a stable sort puts the less relevant first
    order = worst.gather(1, scores.gather(1, worst).argsort(dim=1, descending=True, stable=True))
    discount = 1 / torch.arange(2, k + 2, dtype=torch.float64).log2()
    gained = relevance.gather(1, order[:, :k]) @ discount
    return gained / (relevance.topk(k, 1).values @ discount)


def rouge_l(candidate: str, reference: str) -> float:
    """F-measure of the longest common subsequence of words."""
    return float(_rouge_rows(candidate, _Bits([reference]))[0])


def rouge_relevance(pictures: list[Captioned]) -> Tensor:
    """(B, C): how well every caption fits every picture, the best ROUGE-L with any of the picture's own captions."""
    captions = [caption for item in pictures for caption in item.captions]
    bits = _Bits(captions)
    starts = np.cumsum([0, *(len(item.captions) for item in pictures)])[:-1]
    rows = [np.maximum.reduceat(_rouge_rows(caption, bits), starts) for caption in captions]  # (B,) each
    return torch.from_numpy(np.stack(rows, 1))


class _Bits:
    """For every word, its places in every reference, as the bits of one integer per reference."""

    def __init__(self, references: list[str]) -> None:
        texts = [words_of(text)[:BITS] for text in references]
        self.lengths = np.array([len(words) for words in texts])
        self.places: dict[str, np.ndarray] = {}
        self.none = np.zeros(len(texts), np.uint64)
        for number, words in enumerate(texts):
            for place, word in enumerate(words):
                self.places.setdefault(word, self.none.copy())[number] |= np.uint64(1 << place)


def _rouge_rows(candidate: str, bits: _Bits) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """ROUGE-L of a text with every reference at once; the subsequences by Hyyrö's bit-parallel recurrence."""
    words = words_of(candidate)[:BITS]
    open_places = ~bits.none  # a zero bit ends a common subsequence that got longer
    for word in words:
        matched = open_places & bits.places.get(word, bits.none)
        open_places = (open_places + matched) | (open_places - matched)
    inside = (np.uint64(1) << bits.lengths.astype(np.uint64)) - np.uint64(1)
    ended = (~open_places & inside).view(np.uint8).reshape(len(inside), 8)
    common = np.unpackbits(ended, axis=1).sum(1).astype(np.float64)
    precision, recall = common / len(words), common / bits.lengths
    weighted = recall + BETA**2 * precision
    return np.divide((1 + BETA**2) * precision * recall, weighted, out=np.zeros_like(common), where=weighted > 0)


class Judgement(NamedTuple):
    """A human judgement of a picture and a caption, which may be another picture's."""

    picture: str
    owner: str  # the picture that the caption was written for
    caption: int  # which of its captions
    relevance: float  # 0–1


def read_judgements(file: Path) -> list[Judgement]:
    """Flickr8k's crowd.txt (share of yes) or experts.txt (three marks of 1–4)."""
    judgements = []
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        try:
            judgements.append(_judgement(line, experts=file.stem.startswith("expert")))
        except (ValueError, IndexError) as error:
            raise InputError(
                f"{file}, line {number}: {line[:80]!r} is not a judgement (PICTURE, PICTURE#NUMBER and marks, "
                "separated by tabs): correct or remove the line"
            ) from error
    return judgements


def _judgement(line: str, *, experts: bool) -> Judgement:
    picture, caption, *values = line.split("\t")
    owner, _, which = caption.partition("#")
    marks = [float(value) for value in values]
    relevance = (sum(marks) / max(len(marks), 1) - 1) / 3 if experts else marks[0]
    if not 0 <= relevance <= 1 or int(which) < 0:
        raise ValueError(line)
    return Judgement(picture, owner, int(which), relevance)


def judged_ndcg(
    i2t_scores: Tensor, t2i_scores: Tensor, pictures: list[Captioned], judgements: list[Judgement], k: int = 25
) -> dict[str, float | None]:
    """NDCG in percent over the pairs that people judged, both directions, and how many queries that is.

    Only judged candidates are ranked; whether the others fit is unknown. Queries whose judged candidates all have the
    same mark are left out; None if no query remains, as in a split without judgements.
    """
    numbers = {item.path.name: n for n, item in enumerate(pictures)}
    starts = np.cumsum([0, *(len(item.captions) for item in pictures)]).tolist()
    marks = torch.full(i2t_scores.shape, torch.nan, dtype=torch.float64)
    for picture, owner, caption, relevance in judgements:
        if picture in numbers and owner in numbers and caption < len(pictures[numbers[owner]].captions):
            marks[numbers[picture], starts[numbers[owner]] + caption] = relevance
    i2t, t2i = _over_judged(i2t_scores, marks, k), _over_judged(t2i_scores, marks.T, k)
    return {
        "i2t": 100 * float(i2t.mean()) if len(i2t) else None,
        "i2t_queries": len(i2t),
        "t2i": 100 * float(t2i.mean()) if len(t2i) else None,
        "t2i_queries": len(t2i),
    }


def _over_judged(scores: Tensor, marks: Tensor, k: int) -> Tensor:
    values = []
    for row, mark in zip(scores, marks, strict=True):
        judged = ~mark.isnan()
        if judged.any() and mark[judged].min() < mark[judged].max():
            values.append(ndcg(row[judged].unsqueeze(0), mark[judged].unsqueeze(0), k))
    return torch.cat(values) if values else torch.zeros(0)
