"""Do larger pictures, or several views of each, help a trained model? rsum on dev, without training anything again.

    python tools/check_views.py FLICKR8K CACHE MODEL [MODEL ...]

Several views of a picture (its mirror image, random crops of 60–100 % of it) have the mean of their vectors as their
vector, and the patches of all of them. Two stages, K = 20.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from check_word_weights import rsum as two_stages
from torch.nn.functional import normalize

import mjp  # noqa: F401 (before timm)
from mjp.aladin.data.captions import Captioned, in_split, load_captions
from mjp.aladin.data.corpus import Corpus, encode_corpus
from mjp.aladin.evaluate.metrics import ranks, recall
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes, joined
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.model.tokens import Tokens
from mjp.aladin.model.vision import Vision
from mjp.common.progress import track
from mjp.pictures.decode import open_rgb

LARGE, VIEWS = 288, 4
K = 20
BATCH = 8


def main(data: Path, cache: Path, names: list[str]) -> None:
    models = [find_aladin(name, searchable=True) for name in names]
    dev, vision = in_split(load_captions(data), "dev"), models[0].vision
    large = backbone_tokens(dev, replace(vision, size=(LARGE, LARGE)), 0)
    further = [backbone_tokens(dev, vision, view) for view in range(1, VIEWS)]
    for name, model in zip(names, models, strict=True):
        corpus = Corpus(model, dev, cache, workers=0, max_unreadable=0)
        pictures, texts = encode_corpus(model, corpus)
        views = [pictures, *(codes_of(model, tokens) for tokens in further)]
        ways = {
            "as shipped": pictures,
            f"{LARGE} pixels": codes_of(model, large),
            **{f"{count} views": together(views[:count]) for count in (2, VIEWS)},
        }
        for way, codes in ways.items():
            vector = recall(ranks(codes.vector @ texts.vector.T, corpus.owner)).rsum
            both = two_stages(codes, texts, corpus.owner, K)
            print(f"{name}, {way}: dev rsum, vector {vector:.1f}, two stages {both:.1f}", flush=True)


def backbone_tokens(items: list[Captioned], vision: Vision, view: int) -> Tokens:
    """Of all pictures, in one view."""
    batches = [range(start, min(start + BATCH, len(items))) for start in range(0, len(items), BATCH)]
    parts = [
        vision.tokens(torch.stack([vision.prepare(open_rgb(items[n].path), view, seed=n) for n in numbers]))
        for numbers in track(batches, f"{vision.size[0]} pixels, view {view}")
    ]
    return Tokens(*(torch.cat(column) for column in zip(*parts, strict=True)))


def codes_of(model: Aladin, tokens: Tokens) -> Codes:
    starts = range(0, len(tokens.cls), 128)
    return joined([model.codes(Tokens(*(part[start : start + 128] for part in tokens))) for start in starts])


def together(views: list[Codes]) -> Codes:
    """Several views of every picture as one."""
    vector = normalize(torch.stack([codes.vector for codes in views]).sum(0), dim=1)
    _, *patches = zip(*views, strict=True)
    return Codes(vector, *(torch.cat(column, 1) for column in patches))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
