"""How often "perhaps nothing here really matches" is right: python tools/check_doubt.py FLICKR8K [MODEL]

Sixty indexes of 500 pictures of the dev and test splits. From each all pictures are left out whose captions name one of
five things, drawn with seed 0: these things are queries without an answer. The other things that a caption of the index
names are queries with one. Captions do not name everything that is in a picture, so some of the first have an answer.
"""

import re
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from mjp.aladin.data.captions import load_captions
from mjp.aladin.index.config import IndexConfig
from mjp.aladin.index.store import open_or_create
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.shipped import SHIPPED, find_aladin
from mjp.aladin.search import doubt
from mjp.common.progress import track
from mjp.pictures.decode import open_rgb

THINGS = [
    "dog",
    "boy",
    "girl",
    "woman",
    "child",
    "baby",
    "ball",
    "beach",
    "snow",
    "water",
    "grass",
    "street",
    "bike",
    "bicycle",
    "football",
    "soccer",
    "basketball",
    "tennis",
    "skateboard",
    "car",
    "rock",
    "mountain",
    "tree",
    "swing",
    "pool",
    "ocean",
    "hat",
    "shirt",
    "jacket",
    "camera",
    "motorcycle",
    "boat",
    "field",
    "sand",
    "slide",
    "bench",
    "hill",
    "river",
    "bridge",
    "wall",
    "fence",
    "helmet",
    "surfboard",
    "wave",
]
INDEXES, PICTURES, LEFT_OUT, BATCH = 60, 500, 5, 32


def main(data: Path, name: str) -> None:
    model = find_aladin(name)
    items = [item for item in load_captions(data) if item.split in ("dev", "test")][:1500]
    vectors = []
    for start in track(range(0, len(items), BATCH), "encoding"):
        pictures = [open_rgb(item.path, at_least=2 * max(model.vision.size)) for item in items[start : start + BATCH]]
        vectors.append(model.encode_pictures(torch.stack([model.vision.prepare(p) for p in pictures])).vector.cpu())
    everything = torch.cat(vectors)
    words = [set(re.findall("[a-z]+", " ".join(item.captions).lower())) for item in items]
    names = torch.tensor([[thing in said for thing in THINGS] for said in words])  # (pictures, things)
    queries = model.encode_texts([f"a {thing}" for thing in THINGS]).vector.cpu()
    generator, counts = torch.Generator().manual_seed(0), Counter[str]()
    for _ in track(range(INDEXES), "indexes"):
        absent = torch.randperm(len(THINGS), generator=generator)[:LEFT_OUT]
        rest = (~names[:, absent].any(1)).nonzero()[:, 0]
        rest = rest[torch.randperm(len(rest), generator=generator)[:PICTURES]]
        counts += _ask(model, everything[rest], names[rest], queries, set(absent.tolist()))
    missed, false = (counts[a] / counts[b] for a, b in (("believed", "without"), ("doubted", "with")))
    print(f"queries without an answer {counts['without']}, not doubted {missed:.1%}")
    print(f"queries with an answer    {counts['with']}, doubted {false:.1%}")


def _ask(
    model: object, vectors: torch.Tensor, names: torch.Tensor, queries: torch.Tensor, absent: set[int]
) -> Counter[str]:
    asked, counts = doubt.Doubt(model), Counter[str]()  # type: ignore[arg-type]
    with TemporaryDirectory() as folder:
        index = open_or_create(Path(folder) / "index", IndexConfig("none", "none", 0.0, (1, 1)))
        valid = torch.ones(len(vectors), 1, dtype=torch.bool)
        index.add(
            [f"{n}" for n in range(len(vectors))], Codes(vectors, torch.zeros(len(valid), 1, 1), valid, ~valid), []
        )
        for thing, query in enumerate(queries):
            best = (vectors @ query).topk(doubt.NEAREST)
            doubted = bool(asked.about(index, vectors[best.indices], best.values))
            if thing in absent:
                counts += Counter(without=1, believed=int(not doubted))
            elif bool(names[:, thing].any()):
                counts += Counter({"with": 1, "doubted": int(doubted)})
    return counts


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else SHIPPED)
