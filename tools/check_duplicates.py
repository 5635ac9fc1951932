"""How many copies `mjp aladin duplicates` finds, and how many groups join different pictures.

    python tools/check_duplicates.py FLICKR8K [SPLIT] [THRESHOLD ...]

An index of all pictures of SPLIT (test), and of copies of its first 100 in every way of COPIES. A copy counts as found
if it is in the group of its original. Flickr8k contains some shots of one scene: groups of different pictures are
listed by their similarity, with the names of the files, to be looked at.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageEnhance, ImageOps

import mjp  # noqa: F401  before timm
from mjp.aladin import index_pictures
from mjp.aladin.data.captions import in_split, load_captions
from mjp.aladin.index.duplicates import Group, duplicate_groups
from mjp.aladin.model.shipped import SHIPPED, find_aladin
from mjp.pictures.decode import open_rgb

COPIED = 100
MARK = "~"  # between the name of a picture and the kind of its copy
THRESHOLDS = (0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.97)


def cropped(picture: Image.Image, share: float) -> Image.Image:
    """Without so much of every side."""
    width, height = picture.size
    return picture.crop((int(share * width), int(share * height), int((1 - share) * width), int((1 - share) * height)))


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "half the size": lambda picture: ImageOps.scale(picture, 0.5, Image.Resampling.LANCZOS),
    "JPEG quality 40": lambda picture: picture,
    "3 % off every side": lambda picture: cropped(picture, 0.03),
    "10 % off every side": lambda picture: cropped(picture, 0.1),
    "30 % brighter": lambda picture: ImageEnhance.Brightness(picture).enhance(1.3),
    "grey": ImageOps.grayscale,
    "mirrored": ImageOps.mirror,
}


def write_pictures(paths: list[Path], folder: Path) -> None:
    for path in paths:
        (folder / path.name).symlink_to(path.resolve())
    for path in paths[:COPIED]:
        picture = open_rgb(path)
        for kind, change in COPIES.items():
            change(picture).save(folder / f"{path.stem}{MARK}{kind}.jpg", quality=40 if "40" in kind else 90)


def names(group: Group) -> list[str]:
    return [path.stem for entry in group.pictures for path in entry.paths]


def report(groups: list[Group], threshold: float) -> None:
    found: Counter[str] = Counter()
    for group in groups:
        members = set(names(group))
        found.update(name.partition(MARK)[2] for name in members if name.partition(MARK)[0] in members - {name})
    mixed = [group for group in groups if len({name.partition(MARK)[0] for name in names(group)}) > 1]
    shares = ", ".join(f"{kind} {100 * found[kind] / COPIED:.0f} %" for kind in COPIES)
    print(f"{threshold}: {shares}; {len(mixed)} groups of different pictures", flush=True)
    for group in mixed[:10]:
        print(f"    {group.similarity:.3f} {sorted({name.partition(MARK)[0] for name in names(group)})[:4]}")


def main(data: str, split: str = "test", *thresholds: str) -> None:
    captioned = in_split(load_captions(Path(data)), split)
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home, "pictures")
        folder.mkdir()
        write_pictures([picture.path for picture in captioned], folder)
        model = find_aladin(SHIPPED)
        index = index_pictures(folder, Path(home, "index"), model=model).index
        for threshold in map(float, thresholds or THRESHOLDS):
            report(duplicate_groups(index, threshold, class_width=model.class_width), threshold)


if __name__ == "__main__":
    main(*sys.argv[1:])
