"""Do single words find what they mean, also words that no training caption contains?

For each query the ten nearest pictures of the test split; right is a picture one of whose captions matches the pattern.
"Chance" is the share of all test pictures that do.

    python tools/check_queries.py FLICKR8K [MODEL] [CACHE]
"""

import re
import sys
from pathlib import Path

import torch

import mjp  # noqa: F401 (before timm)
from mjp.aladin.data.captions import all_captions, in_split, load_captions
from mjp.aladin.data.corpus import Corpus, encode_corpus
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
}


def main(data: str, model: str = "aladin-flickr8k", cache: str = "out/aladin-features") -> None:
    captions = load_captions(Path(data))
    vocabulary = {word for text in all_captions(in_split(captions, "train")) for word in words_of(text)}
    aladin = find_aladin(model)
    corpus = Corpus(aladin, in_split(captions, "test"), Path(cache), workers=1, max_unreadable=0)
    pictures, _ = encode_corpus(aladin, corpus)
    print(f"{'query':<14}{'in training captions':<22}{'pieces':<8}{'right of 10':<13}chance, %")
    for query, pattern in QUERIES.items():
        right = torch.tensor(
            [any(re.search(rf"\b({pattern})\b", text.lower()) for text in item.captions) for item in corpus.items]
        )
        codes = aladin.encode_texts([query])
        nearest = (pictures.vector @ codes.vector[0]).topk(10).indices
        trained = "yes" if query in vocabulary else "no"
        count, chance = int(right[nearest].sum()), 100 * right.float().mean()
        print(f"{query:<14}{trained:<22}{codes.tokens.shape[1]:<8}{count:<13}{chance:.0f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
