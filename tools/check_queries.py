"""Do words find what they mean, also words that no training caption contains, or that name no class of ImageNet?

For each query the ten best pictures of the test split, in two stages; right is a picture one of whose captions matches
the pattern. "Chance" is the share of all test pictures that do. "Class" says whether a word of the query is a name or a
kind of ImageNet's classes, which the class channel was fitted to.

    python tools/check_queries.py FLICKR8K [MODEL] [CACHE]
"""

import re
import sys
from pathlib import Path
from statistics import mean

import torch

import mjp  # noqa: F401 (before timm)
from mjp.aladin.data.captions import all_captions, in_split, load_captions
from mjp.aladin.data.classes import class_names, kinds
from mjp.aladin.data.corpus import Corpus, encode_corpus
from mjp.aladin.evaluate.metrics import rerank
from mjp.aladin.evaluate.scorers import ALIGNMENT, VECTOR, scores_of
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.model.tokenizer import words_of

QUERIES = {
    **dict.fromkeys(("dog", "puppy", "hound", "canine", "mongrel"), r"dogs?|pupp(y|ies)"),
    **dict.fromkeys(("beach", "seashore", "seaside"), r"beach|ocean|sea|shore|coast"),
    **dict.fromkeys(("bicycle", "cyclist", "bicyclist"), r"bi(ke|cycl)\w*|cycl\w+"),
    **dict.fromkeys(("car", "automobile", "lorry"), r"cars?|trucks?|vans?|vehicles?|rac(e|ing)"),
    **dict.fromkeys(("snow", "snowboarder", "wintry"), r"snow\w*|ski\w*"),
    **dict.fromkeys(("boy", "lad"), r"boys?|kids?|child(ren)?"),
    **dict.fromkeys(("footballer", "soccer"), r"football|soccer"),
    **dict.fromkeys(("surfer", "wave"), r"surf\w*|waves?"),
    **dict.fromkeys(("sunset", "dusk"), r"sun(set|rise)|dusk|silhouett\w*"),
    **dict.fromkeys(("crowd", "audience"), r"crowd\w*|audience|spectators?|many people"),
    **dict.fromkeys(("people", "a group of friends"), r"people|men|women|group|crowd|couple|friends"),
    **dict.fromkeys(("woman", "lady"), r"wom[ae]n|lad(y|ies)|girls?"),
    **dict.fromkeys(("city", "downtown"), r"city|streets?|downtown|urban|buildings?|sidewalk"),
    **dict.fromkeys(("rock", "cliff climber"), r"rocks?|rocky|cliffs?|boulders?|climb\w*"),
    "running": r"run\w*",
    "jumping": r"jump\w*|leap\w*",
    "swimming": r"swim\w*|pools?",
    "smiling": r"smil\w*|laugh\w*|grin\w*",
    "night": r"night|dark\w*",
    "rain": r"rain\w*|umbrellas?|wet|puddles?",
    "sand": r"sand\w*|beach|desert|dunes?",
    "party": r"part(y|ies)|birthday|celebrat\w*",
    "red shirt": r"red",
    "race": r"rac(e|es|ing|ers?)",
    "sitting on a bench": r"bench\w*",
    "two dogs playing": r"dogs",
    "people on a beach": r"beach|ocean|sea|shore|coast",
    "man with a hat": r"hats?|caps?",
}
K = 20  # candidates that a search re-ranks unless it is told otherwise


def main(data: str, model: str = "aladin-flickr8k", cache: str = "out/aladin-features") -> None:
    captions = load_captions(Path(data))
    vocabulary = {word for text in all_captions(in_split(captions, "train")) for word in words_of(text)}
    aladin = find_aladin(model)
    corpus = Corpus(aladin, in_split(captions, "test"), Path(cache), workers=1, max_unreadable=0)
    pictures, _ = encode_corpus(aladin, corpus)
    fitted = {*kinds(), *(name.lower() for names in class_names() for name in names)}
    print(f"{'query':<20}{'in training captions':<22}{'class':<7}{'right of 10':<13}chance, %")
    groups: dict[str, list[tuple[float, float]]] = {"class": [], "no class": []}
    for query, pattern in QUERIES.items():
        right = torch.tensor(
            [any(re.search(rf"\b({pattern})\b", text.lower()) for text in item.captions) for item in corpus.items]
        )
        scores = scores_of(aladin, pictures, aladin.encode_texts([query]))
        best = rerank(scores[VECTOR].T, scores[ALIGNMENT].T, K)[0].topk(10).indices
        trained = "yes" if vocabulary.issuperset(words_of(query)) else "no"
        group = "no class" if fitted.isdisjoint([query, *words_of(query)]) else "class"
        count, chance = int(right[best].sum()), 100 * float(right.float().mean())
        groups[group].append((10 * count, chance))
        print(f"{query:<20}{trained:<22}{'yes' if group == 'class' else 'no':<7}{count:<13}{chance:.0f}")
    for group, values in groups.items():
        precision, chance = (mean(column) for column in zip(*values, strict=True))
        print(f"{group}: {len(values)} queries, P@10 {precision:.1f} %, chance {chance:.1f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
