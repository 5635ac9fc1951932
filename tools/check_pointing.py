"""Is the patch that answers a word where the thing is, and is there a frame only if the thing is there?

Collages of four pictures, one of which shows the thing (four captions of five name it) while the others do not (no
caption does). Right is a patch in that quarter; patches across the middle are not counted. Chance is 25 %. "Windows":
windows of the picture encoded alone, which is what `mjp aladin search --explain` draws. "Mixed": the token that gives
the word its score. "Framed": in how many collages the map has a peak, and in how many of as many without the thing.

    python tools/check_pointing.py FLICKR8K [MODEL] [SPLIT]
"""

import re
import sys
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

import mjp  # noqa: F401 (before timm)
from mjp.aladin.data.captions import Captioned, in_split, load_captions
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.search.explain import has_peak, pieces_of_words
from mjp.aladin.search.windows import word_maps
from mjp.pictures.decode import open_rgb

SIDE, COLLAGES = 224, 100
GRID = (7, 7)  # of the shipped model
DOG = r"dogs?|pupp(y|ies)|animals?"
WATER = r"water|ocean|sea|river|lake|pool|waves?|surf\w*|swim\w*|beach|boats?|kayak\w*"
QUERIES = (  # query, its word, what captions call it
    ("dog", "dog", DOG),
    ("a dog runs", "dog", DOG),
    ("a dog in the snow", "dog", DOG),
    ("snow", "snow", r"snow\w*|ski\w*|sled\w*|ice|icy"),
    ("water", "water", WATER),
    ("a man on a bicycle", "bicycle", r"bi(ke|cycl)\w*|cycl\w+"),
    ("a car", "car", r"cars?|trucks?|vans?|vehicles?|rac(e|ing)|streets?|roads?"),
    ("a boat on the water", "boat", r"boats?|kayak\w*|canoe\w*|raft\w*|ships?|sail\w*"),
    ("a horse", "horse", r"horses?|pon(y|ies)|bulls?|cows?|rodeo|animals?"),
    ("grass", "grass", r"grass\w*|fields?|lawns?|parks?|yards?|meadows?"),
)


def main(data: str, name: str = "aladin-flickr8k", split: str = "test") -> None:
    items = in_split(load_captions(Path(data)), split)
    model = find_aladin(name)
    generator = torch.Generator().manual_seed(0)
    print(f"{'query':<22}{'word':<10}{'windows':<18}{'mixed':<18}{'framed':<10}framed without the thing")
    totals = torch.zeros(2, 2, dtype=torch.int64)
    frames = torch.zeros(2, dtype=torch.int64)
    for query, word, pattern in QUERIES:
        named = torch.tensor([sum(bool(re.search(rf"\b({pattern})\b", t.lower())) for t in i.captions) for i in items])
        pictures, quarters = collages(items, named, generator, shows=True)
        absent, _ = collages(items, named, generator, shows=False)
        alone = model.encode_texts([word])
        maps, empty = (torch.cat([word_maps(model, p, alone, GRID) for p in part]) for part in (pictures, absent))
        tokens = [model.vision.tokens(model.vision.prepare(picture).unsqueeze(0)) for picture in pictures]
        inside = dict(pieces_of_words(model, query))[word]
        mixed = torch.cat([model.codes(t).tokens @ model.encode_texts([query]).tokens[0, inside].T for t in tokens])
        counts = torch.stack([hits(heat.argmax(1), quarters) for heat in (maps, mixed.amax(-1))])
        framed = torch.tensor([sum(map(has_peak, maps)), sum(map(has_peak, empty))])
        totals += counts
        frames += framed
        print(
            f"{query:<22}{word:<10}{share(counts[0]):<18}{share(counts[1]):<18}{framed[0]:<10}{framed[1]}", flush=True
        )
    print(f"{'all':<32}{share(totals[0]):<18}{share(totals[1]):<18}{frames[0]:<10}{frames[1]}")


def collages(
    items: list[Captioned], named: Tensor, generator: torch.Generator, *, shows: bool
) -> tuple[list[Image.Image], Tensor]:
    """Pictures of four, and in which quarter the thing is, in reading order."""
    quarters = torch.randint(4, (COLLAGES,), generator=generator)
    pictures = []
    for quarter in quarters.tolist():
        four = torch.multinomial((named == 0).double(), 4, generator=generator)
        if shows:
            certain = named >= min(4, int(named.max()))
            four[quarter] = torch.multinomial(certain.double(), 1, generator=generator)[0]
        collage = Image.new("RGB", (2 * SIDE, 2 * SIDE))
        for place, number in enumerate(four.tolist()):
            part = open_rgb(items[number].path).resize((SIDE, SIDE))
            collage.paste(part, (place % 2 * SIDE, place // 2 * SIDE))
        pictures.append(collage)
    return pictures, quarters


def hits(patches: Tensor, quarters: Tensor, side: int = 7) -> Tensor:
    """How many are right, and how many count."""
    y, x = patches // side, patches % side
    apart = (y != side // 2) & (x != side // 2)
    right = apart & ((y > side // 2) * 2 + (x > side // 2) == quarters)
    return torch.stack([right.sum(), apart.sum()])


def share(count: Tensor) -> str:
    right, total = count.tolist()
    return f"{right}/{total}, {100 * right / max(total, 1):.0f} %"


if __name__ == "__main__":
    main(*sys.argv[1:])
