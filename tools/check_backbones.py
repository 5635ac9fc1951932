"""How well backbones name what plain words ask for: P@5 of the class channel alone, without training anything again.

    python tools/check_backbones.py CLASSES MODEL[,MODEL...] BACKBONE@PIXELS [BACKBONE@PIXELS ...]

CLASSES/CLASS/*: the first 10 pictures of every class, which must not be those that are reported on. The text side of
the channel is that of MODEL; several are seeds of one. BACKBONE: lite0:classes or lite2:classes.
"""

import sys
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import Tensor
from torch.nn.functional import normalize

import mjp  # noqa: F401 (before timm)
from mjp.aladin.evaluate.labels import Queries, class_queries, kind_queries, precision
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.backbones import find_backbone
from mjp.aladin.model.class_codes import WIDTH
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.model.vision import Vision
from mjp.common.progress import track
from mjp.pictures.decode import open_rgb
from mjp.pictures.sets import Folder

PER_CLASS = 10
BATCH = 8


def main(classes: Path, names: list[str], backbones: list[str]) -> None:
    pictures = Folder(classes)
    labels = torch.tensor(pictures.labels)
    chosen = torch.cat([(labels == n).nonzero()[:PER_CLASS, 0] for n in range(len(pictures.classes))])
    paths, labels = [pictures.paths[n] for n in chosen.tolist()], labels[chosen]
    models = [find_aladin(name, searchable=True) for name in names]
    for backbone in backbones:
        name, _, pixels = backbone.partition("@")
        codes = class_part(find_backbone(name, int(pixels)), paths)
        for way, queries in (("name", class_queries), ("kind", kind_queries)):
            values = [p5(model, codes, queries(pictures.classes, labels)) for model in models]
            spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
            print(f"{backbone}: {len(paths)} pictures, by {way} P@5 {mean(values):.1f}{spread} %", flush=True)


def class_part(vision: Vision, paths: list[Path]) -> Tensor:
    """(B, WIDTH): what the backbone's classifier says of pictures."""
    batches = [paths[start : start + BATCH] for start in range(0, len(paths), BATCH)]
    parts = [
        vision.tokens(torch.stack([vision.prepare(open_rgb(path)) for path in batch])).cls[:, -WIDTH:]
        for batch in track(batches, vision.name)
    ]
    return normalize(torch.cat(parts), dim=1)


def p5(model: Aladin, codes: Tensor, queries: Queries) -> float:
    meant = normalize(model.encode_texts(queries.texts).vector[:, -WIDTH:], dim=1)
    return 100 * float(precision(meant @ codes.T, queries.right)[:, 0].mean())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:])
