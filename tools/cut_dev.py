"""Cut a dev split from training pictures, so that a search never looks at the validation pictures:

    python tools/cut_dev.py DATA OUT --per-class 50

DATA/train/CLASS/* becomes OUT/train/CLASS/* and, the last pictures of every class in order of their names,
OUT/val/CLASS/*. Files are linked, not copied.
"""

import argparse
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--per-class", type=int, default=50)
    options = parser.parse_args()
    for folder in sorted(path for path in (options.data / "train").iterdir() if path.is_dir()):
        pictures = sorted(folder.iterdir())
        parts = {"train": pictures[: -options.per_class], "val": pictures[-options.per_class :]}
        for split, paths in parts.items():
            target = options.out / split / folder.name
            target.mkdir(parents=True)
            for path in paths:
                (target / path.name).symlink_to(path.resolve())
    print(f"{options.out}: train and val, {options.per_class} pictures a class in val")


if __name__ == "__main__":
    main()
