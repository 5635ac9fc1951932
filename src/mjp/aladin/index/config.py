"""index.json: what all entries of an index have in common."""

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.common.read import read_object
from mjp.common.validate import fraction, pair

FORMAT = "mjp-aladin-index-2"
OLD_FORMATS = ("mjp-aladin-index-1",)  # of 0.1.0: without the dates of pictures
INDEX_FILE = "index.json"


@dataclass(frozen=True)
class IndexConfig:
    """The model that encoded the pictures, and how."""

    model: str  # hash
    source: str  # where that model was found: a folder, or the name of the shipped one
    mask_ratio: float  # γ under which every picture was encoded
    grid: tuple[int, int]  # patches of a picture, rows and columns
    created: str = ""

    def check_same(self, other: "IndexConfig", folder: Path) -> None:
        """Refuse codes that cannot be compared with those in the folder."""
        self.check_model(other.model, folder)
        if other.mask_ratio != self.mask_ratio:
            raise InputError(
                f"{folder} was made with --mask-ratio {self.mask_ratio:g}, not {other.mask_ratio:g}: use the same "
                "ratio, or another folder"
            )

    def check_model(self, model: str, folder: Path | str) -> None:
        if model != self.model:
            raise InputError(
                f"{folder} was made by another model ({self.model}, from {self.source}; this one is {model}): pass "
                "that one as --model, or index the pictures into another folder"
            )


def has_index(folder: Path) -> bool:
    return (folder / INDEX_FILE).is_file()


def read_index_config(folder: Path) -> IndexConfig:
    if not has_index(folder):
        raise InputError(f"{folder} is not an index: mjp aladin index PICTURES -o {folder} creates one")
    path = folder / INDEX_FILE
    try:
        content = read_object(path)
        written = content.pop("format")
        config = None if written in OLD_FORMATS else _parse(written, content)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not describe an index: index the pictures again") from error
    if config is None:
        raise InputError(
            f"{folder} was made by mjp 0.1.0, whose indexes hold no dates: index the pictures again, into a new folder"
        )
    return config


def _parse(written: str, content: dict[str, Any]) -> IndexConfig:
    if written != FORMAT:
        raise KeyError("format")
    config = IndexConfig(**{**content, "grid": pair("grid", content["grid"])})
    fraction("mask_ratio", config.mask_ratio)
    if not all(isinstance(text, str) for text in (config.model, config.source, config.created)):
        raise TypeError("text")
    return config


def write_index_config(folder: Path, config: IndexConfig) -> None:
    created = datetime.now(UTC).isoformat(timespec="seconds")
    content = {"format": FORMAT, **asdict(replace(config, created=created))}
    write_atomically(folder / INDEX_FILE, lambda path: path.write_text(json.dumps(content, indent=2) + "\n"))
