"""Do idf weights of words re-rank better than the learned ones? rsum of two stages on dev with other weights.

    python tools/check_word_weights.py FLICKR8K CACHE MODEL [MODEL ...]

MODEL has learned weights (--model.alignment weighted). In their place every word gets the logarithm of how rare it is
in the training captions (idf), or all words count alike. The first stage stays.
"""

import math
import sys
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

import mjp  # noqa: F401 (before timm)
from mjp.aladin.data.captions import all_captions, in_split, load_captions
from mjp.aladin.data.corpus import Corpus, encode_corpus
from mjp.aladin.evaluate.metrics import ranks, recall
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.shipped import find_aladin

K = 50  # candidates that are re-ranked
BLOCK = 32


def main(data: Path, cache: Path, names: list[str]) -> None:
    captions = load_captions(data)
    training = all_captions(in_split(captions, "train"))
    for name in names:
        model = find_aladin(name, searchable=True)
        corpus = Corpus(model, in_split(captions, "dev"), cache, workers=0, max_unreadable=0)
        pictures, texts = encode_corpus(model, corpus)
        learned = texts.tokens.norm(dim=-1)
        weights = {"learned": learned, "idf": idf(model, training, corpus.texts, texts), "equal": texts.valid.float()}
        rsums = {way: rsum(pictures, with_weights(texts, values), corpus.owner, K) for way, values in weights.items()}
        print(f"{name}: dev rsum, {', '.join(f'{way} {value:.1f}' for way, value in rsums.items())}", flush=True)


def idf(model: Aladin, training: list[str], captions: list[str], texts: Codes) -> Tensor:
    """(C, L)."""
    counts = Counter(piece for caption in training for piece in set(model.piece_names(caption)))
    weights = torch.zeros(texts.valid.shape)
    for row, caption in enumerate(captions):
        pieces = model.piece_names(caption)[: weights.shape[1]]
        rarity = [math.log((len(training) + 1) / (counts[piece] + 1)) for piece in pieces]
        weights[row, : len(pieces)] = torch.tensor(rarity)
    return weights


def with_weights(texts: Codes, weights: Tensor) -> Codes:
    weights = weights * texts.valid
    shares = weights / weights.sum(1, keepdim=True)
    return texts._replace(tokens=normalize(texts.tokens, dim=-1) * shares.unsqueeze(-1))


def rsum(pictures: Codes, texts: Codes, owner: Tensor, k: int) -> float:
    """Of two stages, in which either direction re-ranks its own `k` candidates."""
    first = pictures.vector @ texts.vector.T  # (B, C)
    captions, images = first.topk(k, 1).indices, first.topk(k, 0).indices.T  # (B, k), (C, k)
    i2t = torch.cat([_align(pictures.tokens[i : i + BLOCK], texts, captions[i : i + BLOCK]) for i in _blocks(captions)])
    t2i = torch.cat(
        [_align_back(pictures, texts.tokens[i : i + BLOCK], images[i : i + BLOCK]) for i in _blocks(images)]
    )
    return sum(recall(ranks(_first(first, captions, i2t), owner)).i2t) + sum(
        recall(ranks(_first(first.T, images, t2i).T, owner)).t2i
    )


def _align(patches: Tensor, texts: Codes, captions: Tensor) -> Tensor:
    """(b, k): patches (b, R, A) against the words of their captions; padded words have no length."""
    return torch.einsum("bra,bkla->bkrl", patches, texts.tokens[captions]).amax(2).sum(-1)


def _align_back(pictures: Codes, words: Tensor, images: Tensor) -> Tensor:
    """(c, k): words (c, L, A) against the patches of their pictures."""
    return torch.einsum("ckra,cla->ckrl", pictures.tokens[images], words).amax(2).sum(-1)


def _first(scores: Tensor, candidates: Tensor, second: Tensor) -> Tensor:
    """Candidates before all others, in the order of the second stage; cosines and alignments are at most 1."""
    return (scores - 10).scatter(1, candidates, second + 10)


def _blocks(rows: Tensor) -> range:
    return range(0, len(rows), BLOCK)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
