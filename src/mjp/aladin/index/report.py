"""What happened to the pictures of a folder, for people and as JSON."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mjp.aladin.index.catalogue import File
from mjp.aladin.index.store import Index
from mjp.common.terminal import as_text


@dataclass
class IndexReport:
    """The result of `index_pictures`."""

    index: Index
    added: int = 0  # encoded now
    linked: int = 0  # the same content as another file
    unchanged: int = 0  # not opened
    sheets: int = 0  # contact sheets of earlier searches, skipped
    repaired: dict[str, str] = field(default_factory=dict)  # damaged chunk files, and what was wrong with them
    unreadable: list[File] = field(default_factory=list)
    closed: dict[Path, str] = field(default_factory=dict)  # folders that cannot be opened, and why
    missing: list[Path] = field(default_factory=list)  # in the index, but no longer in the folder
    pruned: bool = False  # whether the missing ones were removed

    def to_dict(self) -> dict[str, Any]:
        return {
            "index": str(self.index.folder),
            "pictures": len(self.index),
            "bytes": self.index.bytes(),
            "added": self.added,
            "linked": self.linked,
            "unchanged": self.unchanged,
            "contact_sheets": self.sheets,
            "repaired": self.repaired,
            "unreadable": {as_text(file.path): file.problem for file in self.unreadable},
            "closed_folders": {as_text(path): reason for path, reason in self.closed.items()},
            "missing": [as_text(path) for path in self.missing],
            "pruned": self.pruned,
        }

    def __str__(self) -> str:
        folder = self.index.folder
        lines = {
            "pictures encoded": self.added,
            "files with the same content as another": self.linked,
            "files unchanged": self.unchanged,
        }
        optional = {
            "contact sheets of mjp aladin search skipped": self.sheets,
            "damaged chunks, whose pictures were encoded again": len(self.repaired),
            f"files that cannot be read: mjp aladin stats {folder} lists them": len(self.unreadable),
            "folders that cannot be opened: their pictures stay in the index": len(self.closed),
            "files no longer in the folder, "
            + ("removed" if self.pruned else "still in the index: --prune removes them"): len(self.missing),
        }
        lines |= {text: count for text, count in optional.items() if count}
        size = f"{len(self.index)} pictures, {self.index.bytes() / 1e6:.1f} MB"
        return "\n".join([*(f"{count:>8} {text}" for text, count in lines.items()), "", f"index  {folder}: {size}"])
