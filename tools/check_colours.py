"""Does “a red car” find red cars? P@10 of queries “a COLOUR NOUN” over the captions of a split, in two stages.

    python tools/check_colours.py FLICKR8K [MODEL] [CACHE] [SPLIT]

A query takes part if captions of at least five pictures have the two words side by side; those pictures are right.
Beside it: how many of the ten have the noun, or the colour, in any caption, and the same for search by the part of the
vector that captions taught, without the class channel.
"""

import sys
from itertools import pairwise, product
from pathlib import Path

import torch
from torch import Tensor

import mjp  # noqa: F401 (before timm)
from mjp.aladin.data.captions import Captioned, in_split, load_captions
from mjp.aladin.data.corpus import Corpus, encode_corpus
from mjp.aladin.evaluate.metrics import rerank
from mjp.aladin.evaluate.scorers import ALIGNMENT, VECTOR, scores_of
from mjp.aladin.model.shipped import SHIPPED, find_aladin
from mjp.aladin.model.tokenizer import words_of

COLOURS = ["red", "blue", "green", "yellow", "orange", "pink", "purple", "white", "black", "brown"]
THINGS = ["dog", "car", "truck", "bike", "boat", "kayak", "horse", "bird", "ball", "toy", "slide", "collar"]
CLOTHES = ["shirt", "jacket", "coat", "sweater", "dress", "hat", "cap", "helmet", "shorts", "pants", "suit", "uniform"]
LEAST = 5  # pictures
K = 20  # candidates that a search re-ranks unless it is told otherwise


def main(data: str, model: str = SHIPPED, cache: str = "out/aladin-features", split: str = "test") -> None:
    aladin = find_aladin(model, searchable=True)
    corpus = Corpus(aladin, in_split(load_captions(Path(data)), split), Path(cache), workers=0, max_unreadable=0)
    pictures, _ = encode_corpus(aladin, corpus)
    pairs = list(product(COLOURS, THINGS + CLOTHES))
    queries = [pair for pair in pairs if int(_shows(corpus.items, " ".join(pair)).sum()) >= LEAST]
    texts = aladin.encode_texts([f"a {colour} {noun}" for colour, noun in queries])
    scores = scores_of(aladin, pictures, texts)
    width = aladin.config.width
    ranked = {
        "two stages": rerank(scores[VECTOR].T, scores[ALIGNMENT].T, K),
        "captions' part of the vector": texts.vector[:, :width] @ pictures.vector[:, :width].T,
    }
    right = {
        "both": torch.stack([_shows(corpus.items, " ".join(query)) for query in queries]),
        "the noun": torch.stack([_shows(corpus.items, noun) for _, noun in queries]),
        "the colour": torch.stack([_shows(corpus.items, colour) for colour, _ in queries]),
    }
    print(f"{split}, {len(queries)} queries: {', '.join(' '.join(query) for query in queries)}")
    for way, matrix in ranked.items():
        best = matrix.topk(10).indices  # (Q, 10)
        cells = (f"{name} {100 * float(rows.gather(1, best).float().mean()):.1f}" for name, rows in right.items())
        print(f"{way}: P@10 in percent, {', '.join(cells)}")
    print(f"chance: {', '.join(f'{name} {100 * float(rows.float().mean()):.1f}' for name, rows in right.items())}")


def _shows(items: list[Captioned], phrase: str) -> Tensor:
    """(B,): whether a caption has the words side by side, the last one perhaps in the plural."""
    return torch.tensor([any(_says(caption, phrase.split()) for caption in item.captions) for item in items])


def _says(caption: str, phrase: list[str]) -> bool:
    words = words_of(caption)
    if len(phrase) == 1:
        return bool({phrase[0], f"{phrase[0]}s"} & set(words))
    return any(first == phrase[0] and second in (phrase[1], f"{phrase[1]}s") for first, second in pairwise(words))


if __name__ == "__main__":
    main(*sys.argv[1:])
