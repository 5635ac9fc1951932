"""How often "perhaps nothing here really matches" is right.

    python tools/check_doubt.py FLICKR8K CLASSES CACHE [SPLIT] [MODEL]

captions   60 indexes of 250 pictures of SPLIT (test). From each all pictures are left out that a caption says may show
           one of four things, drawn with seed 0: these are queries without an answer. The other things of which a
           caption uses the very word are queries with one.
classes    30 indexes of 600 pictures of CLASSES/CLASS/*, of 60 % of the classes. Of the names and kinds of all classes
           20 that no picture of the index shows are queries without an answer, 20 others are queries with one.

Captions do not name everything that is in a picture, so some queries of the first part count as false that are right.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

import mjp  # noqa: F401  before timm
from mjp.aladin.data.captions import Captioned, in_split, load_captions
from mjp.aladin.data.classes import plain_name, with_article
from mjp.aladin.data.corpus import Corpus, encode_corpus
from mjp.aladin.evaluate.labels import kind_queries, label_data
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.shipped import SHIPPED, find_aladin
from mjp.aladin.search.doubt import NEAREST, Doubt

THINGS = {  # what is asked for, and all words that may mean it
    "dog": r"dogs?|pupp\w+|hounds?|terriers?|poodles?|labs?|retrievers?|collies?|greyhounds?",
    "horse": r"horses?|pon(y|ies)|rodeo|bulls?",
    "car": r"cars?|trucks?|vans?|vehicles?|jeeps?|racing|suv|automobiles?|race",
    "boat": r"boats?|kayak\w*|canoe\w*|rafts?|rafting|ships?|sail\w*|row\w*",
    "bicycle": r"bik\w+|bicycl\w+|cycl\w+|tricycles?|bmx",
    "motorcycle": r"motor\w*|bik\w+|moto\w*|atv|wheeler",
    "snow": r"snow\w*|ski\w*|sled\w*|ice|icy|winter",
    "soccer": r"soccer|football|goalie|ball",
    "basketball": r"basketball|hoop|ball|dunk\w*",
    "tennis": r"tennis|rac(qu|k)ets?|ball",
    "baseball": r"baseball|bat|pitch\w*|ball",
    "skateboard": r"skate\w*|skating|boards?|ramp|rollerblad\w*",
    "surfing": r"surf\w*|waves?|boards?|wakeboard\w*|ocean",
    "swimming pool": r"pools?|swim\w*|diving",
    "beach": r"beach\w*|sand\w*|ocean|sea|shore|waves?|coast",
    "mountain": r"mountain\w*|cliffs?|rocks?|rocky|hill\w*|climb\w*|peaks?|canyon",
    "baby": r"bab(y|ies)|infants?|toddlers?|newborn",
    "bird": r"birds?|ducks?|pigeons?|geese|goose|seagulls?|swans?|parrots?|flamingos?|eagles?|hawks?",
    "cat": r"cats?|kittens?|kitty",
    "guitar": r"guitars?|music\w*|instruments?|band|bass|concert|violin",
    "tent": r"tents?|camp\w*",
    "trampoline": r"trampolin\w*|bounc\w*|jump\w*",
    "swing": r"swing\w*|playground",
    "fountain": r"fountains?|sprinklers?|water",
    "train": r"trains?|subway|railroad|tracks?|railway|rail",
    "umbrella": r"umbrellas?|rain\w*|parasol",
    "wedding": r"wedding|brides?|groom|bridal|tuxedo",
    "flag": r"flags?|banners?",
    "food": r"food|eat\w*|meals?|cook\w*|dinner|restaurant|cake|ice|lunch|pizza|kitchen|table",
    "fire": r"fires?|flames?|bonfire|campfire|smoke|torch\w*|grill\w*",
    "balloons": r"balloons?",
    "sunset": r"sunset|sunrise|dusk|silhouett\w*|dawn|sun",
    "crowd": r"crowd\w*|audience|people|spectators?|parade|protest\w*|market",
    "river": r"rivers?|streams?|creek|rapids|water|lake|pond",
    "city street": r"street|city|sidewalk|road|downtown|urban|crosswalk",
    "forest": r"forest|woods|wooded|trees?",
    "ice hockey": r"hockey|ice|rink|puck",
    "helicopter": r"helicopters?|airplanes?|planes?|jet",
    "costume": r"costum\w*|dress\w*|mask\w*|clown",
    "book": r"books?|reading|read|newspaper|library",
}
WITHOUT_ARTICLE = {"snow", "surfing", "soccer", "basketball", "tennis", "baseball", "food", "fire", "ice hockey"}
LEFT_OUT = 4
CAPTIONED, LABELLED = (60, 250), (30, 600)  # indexes, and pictures in each
ASKED = 20
CLASS_SHARE = 0.6


def main(flickr8k: Path, classes: Path, cache: Path, split: str, name: str) -> None:
    model = find_aladin(name)
    counts = check_captions(model, _vectors(model, in_split(load_captions(flickr8k), split), cache))
    print(f"{flickr8k}, {split}: {_summary(counts)}")
    counts = check_classes(model, classes, _vectors(model, label_data(classes)[1], cache)[1])
    print(f"{classes}: {_summary(counts)}")


def check_captions(model: Aladin, pictures: tuple[list[Captioned], Tensor]) -> Counter[str]:
    items, vectors = pictures
    texts = [" ".join(item.captions).lower() for item in items]
    may_show = torch.tensor([[bool(re.search(rf"\b({p})\b", text)) for p in THINGS.values()] for text in texts])
    named = torch.tensor([[bool(re.search(rf"\b{thing}\b", text)) for thing in THINGS] for text in texts])
    queries = _encoded(model, [thing if thing in WITHOUT_ARTICLE else with_article(thing) for thing in THINGS])
    generator, counts = torch.Generator().manual_seed(0), Counter[str]()
    for _ in range(CAPTIONED[0]):
        absent = torch.randperm(len(THINGS), generator=generator)[:LEFT_OUT]
        rows = _some((~may_show[:, absent].any(1)).nonzero()[:, 0], CAPTIONED[1], generator)
        present = named[rows].any(0).nonzero()[:, 0]
        counts += _ask(model, vectors[rows], queries[absent], queries[present])
    return counts


def check_classes(model: Aladin, folder: Path, vectors: Tensor) -> Counter[str]:
    pictures = label_data(folder)[0]
    labels = torch.tensor(pictures.labels)
    kinds = kind_queries(pictures.classes, labels)
    texts = [*(with_article(plain_name(name)) for name in pictures.classes), *kinds.texts]
    right = torch.cat([labels == torch.arange(len(pictures.classes)).unsqueeze(1), kinds.right])  # (Q, B)
    queries = _encoded(model, texts)
    generator, counts = torch.Generator().manual_seed(0), Counter[str]()
    for _ in range(LABELLED[0]):
        classes = torch.rand(len(pictures.classes), generator=generator) < CLASS_SHARE
        rows = _some(classes[labels].nonzero()[:, 0], LABELLED[1], generator)
        answered = right[:, rows].any(1)
        absent, present = (_some(side.nonzero()[:, 0], ASKED, generator) for side in (~answered, answered))
        counts += _ask(model, vectors[rows], queries[absent], queries[present])
    return counts


def _ask(model: Aladin, vectors: Tensor, without: Tensor, with_answer: Tensor) -> Counter[str]:
    doubt, counts = Doubt(model), Counter[str]()
    for queries, title in ((without, "without"), (with_answer, "with")):
        for query in queries:
            nearest = vectors[(vectors @ query).topk(NEAREST).indices]
            counts += Counter({title: 1, f"{title}, doubted": int(bool(doubt.about(query, nearest)))})
    return counts


def _vectors(model: Aladin, items: list[Captioned], cache: Path) -> tuple[list[Captioned], Tensor]:
    corpus = Corpus(model, items, cache, workers=0, max_unreadable=0)
    return corpus.items, encode_corpus(model, corpus)[0].vector


def _encoded(model: Aladin, texts: list[str]) -> Tensor:
    return model.encode_texts(texts).vector


def _some(numbers: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return numbers[torch.randperm(len(numbers), generator=generator)[:count]]


def _summary(counts: Counter[str]) -> str:
    missed, false = (1 - counts["without, doubted"] / counts["without"], counts["with, doubted"] / counts["with"])
    return (
        f"{counts['without']} queries without an answer, not doubted {missed:.1%}; "
        f"{counts['with']} with one, doubted {false:.1%}"
    )


if __name__ == "__main__":
    split, model = [*sys.argv[4:6], *("test", SHIPPED)[len(sys.argv[4:6]) :]]
    main(*map(Path, sys.argv[1:4]), split, model)
