"""Pictures with captions, from the three layouts that people have.

    DIR/captions.json + DIR/images/NAME      {NAME: {"split": "train", "captions": [...]}}
    Karpathy's json                          {"images": [{"filename", "filepath"?, "split", "sentences": [{"raw"}]}]}
    COCO's json                              {"images": [{"id", "file_name"}], "annotations": [{"image_id", "caption"}]}

A COCO file is one split, which its name tells: train, val or test, the last if it does not.

`load_captions` takes a folder with captions.json, or one of the JSON files; then pictures lie beside it, in images/
beside it, or in the folder given. Captions without a word are left out; captions of missing pictures are refused by
name.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mjp.common.errors import InputError

HELD_OUT = 1000
SPLITS = {"val": "dev", "valid": "dev", "validation": "dev", "restval": "train"}


class Captioned(NamedTuple):
    """One picture and what people said about it."""

    path: Path
    captions: tuple[str, ...]
    split: str  # train, dev, test, or anything else


def load_captions(source: Path, pictures: Path | None = None) -> list[Captioned]:
    """Every picture of a caption file, in the order of the file."""
    file = source / "captions.json" if source.is_dir() else source
    if not file.is_file():
        raise InputError(f"there is no {file}: give a folder with captions.json, or a COCO or Karpathy json file")
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        rows = list(_rows(facts, file))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file} is neither captions.json nor COCO's nor Karpathy's json: {error!r}") from error
    for name, captions, split in rows:
        # a text in the place of the list would be taken for one caption per letter
        if not isinstance(captions, list) or not all(isinstance(text, str) for text in (name, split, *captions)):
            raise InputError(f"{file}: {name!r} needs a list of texts as its captions, and a text as its split")
    homes = [pictures] if pictures is not None else [file.parent / "images", file.parent]
    found = [_captioned(homes, name, captions, split) for name, captions, split in rows]
    missing = [name for (name, *_), item in zip(rows, found, strict=True) if item is None]
    if missing:
        raise InputError(
            f"{len(missing)} pictures of {file} are not in {homes[0]}: {', '.join(missing[:5])}. Add them, or take "
            "their captions out"
        )
    kept = [item for item in found if item is not None and item.captions]
    if not kept:
        raise InputError(f"{file} holds no picture with a caption")
    return kept


def in_split(data: list[Captioned], split: str) -> list[Captioned]:
    chosen = [item for item in data if item.split == split]
    if not chosen:
        there = sorted({item.split for item in data})
        raise InputError(f"the data has no split {split!r}: it has {', '.join(there)}")
    return chosen


def training_splits(data: list[Captioned]) -> tuple[list[Captioned], list[Captioned]]:
    """Train and dev. Without a dev split, as in a COCO file, a tenth of train, at most HELD_OUT, is drawn for it.

    The draw is the same in every run: a student's dev pictures were not its teacher's training pictures.
    """
    train = in_split(data, "train")
    if any(item.split == "dev" for item in data):
        return train, in_split(data, "dev")
    count = min(HELD_OUT, max(1, len(train) // 10))
    held = set(torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:count].tolist())
    print(
        f"the data has no dev split: {count} of its {len(train)} training pictures are held out, the same in every run"
    )
    return [t for n, t in enumerate(train) if n not in held], [train[n] for n in sorted(held)]


def owners(data: list[Captioned]) -> list[int]:
    """The picture of every caption, captions counted through."""
    return [number for number, item in enumerate(data) for _ in item.captions]


def all_captions(data: list[Captioned]) -> list[str]:
    return [caption for item in data for caption in item.captions]


def _rows(facts: Any, file: Path) -> Iterator[tuple[str, list[str], str]]:
    """(name, captions, split) of whatever layout this is."""
    if "annotations" in facts:
        captions = defaultdict(list)
        for entry in facts["annotations"]:
            captions[entry["image_id"]].append(entry["caption"])
        split = next((word for word in ("train", "val", "test") if word in file.stem), "test")
        for entry in facts["images"]:
            yield entry["file_name"], captions[entry["id"]], split
    elif "images" in facts and isinstance(facts["images"], list):
        for entry in facts["images"]:
            name = str(Path(entry.get("filepath", "")) / entry["filename"])
            yield name, [sentence["raw"] for sentence in entry["sentences"]], entry["split"]
    else:
        for name, entry in facts.items():
            yield name, entry["captions"], entry.get("split", "train")


def _captioned(homes: list[Path], name: str, captions: list[str], split: str) -> Captioned | None:
    real = tuple(text.strip() for text in captions if any(letter.isalnum() for letter in text))
    path = next((home / name for home in homes if (home / name).is_file()), None)
    return None if path is None else Captioned(path, real, SPLITS.get(split, split))
