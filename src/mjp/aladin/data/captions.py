"""Pictures with captions, from the three layouts that people have.

    DIR/captions.json + DIR/images/NAME      {NAME: {"split": "train", "captions": [...]}}
    Karpathy's json                          {"images": [{"filename", "filepath"?, "split", "sentences": [{"raw"}]}]}
    COCO's json                              {"images": [{"id", "file_name"}], "annotations": [{"image_id", "caption"}]}

A COCO file is one split, taken from its name: train, val or test; test if the name contains none of them.

`load_captions` takes a folder with captions.json, or one of the JSON files; pictures are then looked for in the folder
passed, or in images/ beside the file and beside the file itself. Captions without a word are dropped; captions whose
picture is missing are refused by name.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mjp.common.errors import InputError, shorten
from mjp.common.read import read_object

MAX_HELD_OUT = 1000  # pictures drawn for dev where the data has no dev split
SPLITS = {"val": "dev", "valid": "dev", "validation": "dev", "restval": "train"}


class Captioned(NamedTuple):
    """One picture and its captions."""

    path: Path
    captions: tuple[str, ...]
    split: str  # train, dev, test, or anything else


def load_captions(source: Path, pictures: Path | None = None) -> list[Captioned]:
    """Every picture of a caption file, in the order of the file."""
    file = source / "captions.json" if source.is_dir() else source
    if not file.is_file():
        raise InputError(f"there is no {file}: give a folder with captions.json, or a COCO or Karpathy json file")
    rows = _read(file)
    homes = [pictures] if pictures is not None else [file.parent / "images", file.parent]
    items = [_captioned(homes, name, captions, split) for name, captions, split in rows]
    missing = [name for (name, *_), item in zip(rows, items, strict=True) if item is None]
    if missing:
        names = ", ".join(name[:80] for name in missing[:5])
        raise InputError(
            f"{len(missing)} pictures of {file} are not in {homes[0]}: {names}. Add them, or remove their captions"
        )
    captioned = [item for item in items if item is not None and item.captions]
    if not captioned:
        raise InputError(f"{file} contains no picture with a caption")
    return captioned


def in_split(data: list[Captioned], split: str) -> list[Captioned]:
    items = [item for item in data if item.split == split]
    if not items:
        splits = sorted({item.split for item in data})
        raise InputError(f"the data has no split {split!r}: it has {', '.join(splits)[:200]}")
    return items


def training_splits(data: list[Captioned]) -> tuple[list[Captioned], list[Captioned]]:
    """Train and dev. Without a dev split, as in a COCO file, a tenth of train is drawn for it, at most MAX_HELD_OUT.

    The draw is the same in every run: a student's dev pictures were not its teacher's training pictures.
    """
    train = in_split(data, "train")
    if any(item.split == "dev" for item in data):
        return train, in_split(data, "dev")
    count = min(MAX_HELD_OUT, max(1, len(train) // 10))
    held_out = set(torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:count].tolist())
    print(
        f"the data has no dev split: {count} of its {len(train)} training pictures are held out, the same in every run"
    )
    return [item for n, item in enumerate(train) if n not in held_out], [train[n] for n in sorted(held_out)]


def owners(data: list[Captioned]) -> list[int]:
    """The picture of every caption; captions are numbered consecutively."""
    return [number for number, item in enumerate(data) for _ in item.captions]


def all_captions(data: list[Captioned]) -> list[str]:
    return [caption for item in data for caption in item.captions]


def _read(file: Path) -> list[tuple[str, list[str], str]]:
    """(name, captions, split) of every picture. The file's content must not reach an error message: it may be large."""
    try:
        rows = list(_rows(read_object(file, advice="give a caption file"), file))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file} is neither captions.json nor COCO's nor Karpathy's json") from error
    for name, captions, split in rows:
        # a text in place of the list would be taken for one caption per letter
        if not isinstance(captions, list) or not all(isinstance(text, str) for text in (name, split, *captions)):
            raise InputError(f"{file}: {shorten(name)} needs a list of texts as its captions, and a text as its split")
    return rows


def _rows(content: Any, file: Path) -> Iterator[tuple[str, list[str], str]]:
    """(name, captions, split), whichever layout this is."""
    if "annotations" in content:
        captions = defaultdict(list)
        for entry in content["annotations"]:
            captions[entry["image_id"]].append(entry["caption"])
        split = next((word for word in ("train", "val", "test") if word in file.stem), "test")
        for entry in content["images"]:
            yield entry["file_name"], captions[entry["id"]], split
    elif "images" in content and isinstance(content["images"], list):
        for entry in content["images"]:
            name = str(Path(entry.get("filepath", "")) / entry["filename"])
            yield name, [sentence["raw"] for sentence in entry["sentences"]], entry["split"]
    else:
        for name, entry in content.items():
            yield name, entry["captions"], entry.get("split", "train")


def _captioned(homes: list[Path], name: str, captions: list[str], split: str) -> Captioned | None:
    texts = tuple(text.strip() for text in captions if any(letter.isalnum() for letter in text))
    path = next((home / name for home in homes if _is_file(home / name)), None)
    return None if path is None else Captioned(path, texts, SPLITS.get(split, split))


def _is_file(path: Path) -> bool:
    """Also for names that the file system refuses: too long, or with a NUL in them."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
