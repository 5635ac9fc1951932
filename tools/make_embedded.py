"""Make the embedded pictures: the first 500 training and 100 test pictures of every CIFAR-10 class, lossless.

    python tools/make_embedded.py CIFAR10 src/mjp/pictures/embedded

CIFAR10 holds train/CLASS/NNNNN.png and val/CLASS/NNNNN.png, all 60,000 pictures numbered in their original order. Each
split becomes one sheet of tiles (lossless WebP) in that order, and a JSON file with the labels.
"""

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

COLUMNS = 50


def main(source: Path, target: Path) -> None:
    classes = sorted(folder.name for folder in (source / "train").iterdir() if folder.is_dir())
    for split, per_class in (("train", 500), ("val", 100)):
        chosen = []
        for label, name in enumerate(classes):
            files = sorted((source / split / name).glob("*.png"))[:per_class]
            chosen += [(int(file.stem), label, file) for file in files]
        chosen.sort()
        tiles = np.stack([np.array(Image.open(file).convert("RGB")) for _, _, file in chosen])
        rows = tiles.reshape(-1, COLUMNS, 32, 32, 3).transpose(0, 2, 1, 3, 4)  # (row, y, column, x, colour)
        sheet = Image.fromarray(rows.reshape(-1, COLUMNS * 32, 3))
        sheet.save(target / f"{split}.webp", lossless=True, quality=100, method=6)
        facts = {"classes": classes, "columns": COLUMNS, "labels": [label for _, label, _ in chosen]}
        (target / f"{split}.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
