"""Is the patch that answers a word where the thing is?

Collages of four test pictures, one of which shows the thing (four captions of five name it) while the others do not (no
caption does). Right is a patch in that quarter; patches across the middle are not counted. Chance is 25 %. "Alone": the
word and every patch encoded alone, which is what `mjp aladin search --explain` draws. "Mixed": the token that gives the
word its score.

    python tools/check_pointing.py FLICKR8K [MODEL]
"""

import re
import sys
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

import mjp  # noqa: F401 (before timm)
from mjp.aladin.data.captions import Captioned, in_split, load_captions
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.search.explain import patches_alone, pieces_of_words
from mjp.pictures.decode import open_rgb

SIDE, COLLAGES = 224, 100
QUERIES = (  # query, its word, what captions call it
    ("dog", "dog", r"dogs?|pupp(y|ies)|animals?"),
    ("a dog runs", "dog", r"dogs?|pupp(y|ies)|animals?"),
    ("snow", "snow", r"snow\w*|ski\w*|sled\w*"),
    ("water", "water", r"water|ocean|sea|river|lake|pool|waves?|surf\w*|swim\w*"),
    ("a man on a bicycle", "bicycle", r"bi(ke|cycl)\w*|cycl\w+"),
)


def main(data: str, name: str = "aladin-flickr8k") -> None:
    items = in_split(load_captions(Path(data)), "test")
    model = find_aladin(name)
    generator = torch.Generator().manual_seed(0)
    print(f"{'query':<20}{'word':<10}{'alone':<18}{'mixed':<18}right of those not across the middle")
    for query, word, pattern in QUERIES:
        named = torch.tensor([sum(bool(re.search(rf"\b({pattern})\b", t.lower())) for t in i.captions) for i in items])
        images, quarters = collages(model, items, named, generator)
        tokens, inside = model.vision.tokens(images), dict(pieces_of_words(model, query))[word]
        alone = patches_alone(model, tokens) @ model.encode_texts([word]).tokens[0].T  # (B, R, pieces)
        mixed = model.codes(tokens).tokens @ model.encode_texts([query]).tokens[0, inside].T
        cells = [hits(cosines.amax(-1).argmax(1), quarters) for cosines in (alone, mixed)]
        print(f"{query:<20}{word:<10}{cells[0]:<18}{cells[1]:<18}")


def collages(model: Aladin, items: list[Captioned], named: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pictures of four, and in which quarter the thing is, in reading order."""
    quarters = torch.randint(4, (COLLAGES,), generator=generator)
    images = []
    for quarter in quarters.tolist():
        four = torch.multinomial((named == 0).double(), 4, generator=generator)
        four[quarter] = torch.multinomial((named >= 4).double(), 1, generator=generator)
        collage = Image.new("RGB", (2 * SIDE, 2 * SIDE))
        for place, number in enumerate(four.tolist()):
            part = open_rgb(items[number].path).resize((SIDE, SIDE))
            collage.paste(part, (place % 2 * SIDE, place // 2 * SIDE))
        images.append(model.vision.prepare(collage))
    return torch.stack(images), quarters


def hits(patches: Tensor, quarters: Tensor, side: int = 7) -> str:
    y, x = patches // side, patches % side
    apart = (y != side // 2) & (x != side // 2)
    right = apart & ((y > side // 2) * 2 + (x > side // 2) == quarters)
    return f"{int(right.sum())}/{int(apart.sum())}, {100 * float(right.sum() / apart.sum()):.0f} %"


if __name__ == "__main__":
    main(*sys.argv[1:])
