"""What a cell was computed from: the pictures that judged it, and the checkpoint that it started from.

Runs are compared picture by picture, so cells of one table must come from the same sources. Cells that were computed
before sources were written down have none, and pass.
"""

import hashlib
from pathlib import Path
from typing import Any

from mjp.common.errors import InputError
from mjp.evaluation.batches import find_pictures

WORDS = {"pictures": "judged on other pictures", "checkpoint": "started from another checkpoint"}


def sources(data: str, checkpoint: Path | None) -> dict[str, str | None]:
    """Short hashes of the names and classes of the validation pictures, and of the checkpoint's content."""
    pictures = find_pictures(data)
    digest = hashlib.sha256()
    for number, label in enumerate(pictures.labels):
        digest.update(f"{Path(pictures.name(number)).name} {label}\n".encode())
    return {"pictures": digest.hexdigest()[:16], "checkpoint": _content(checkpoint)}


def check_sources(folder: Path, cells: list[dict[str, Any]], expected: dict[str, str | None] | None = None) -> None:
    """Refuse cells whose sources differ from each other, or from those expected."""
    for cell in cells:
        if "sources" not in cell:
            continue
        expected = cell["sources"] if expected is None else expected
        for name, words in WORDS.items():
            if cell["sources"].get(name) != expected.get(name):
                raise InputError(
                    f"the cell {cell['run']}-{cell['seed']} in {folder} was {words}: choose another --out, or remove "
                    "the file to compute it anew"
                )


def _content(checkpoint: Path | None) -> str | None:
    if checkpoint is None:
        return None
    files = [checkpoint] if checkpoint.is_file() else sorted(path for path in checkpoint.rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
