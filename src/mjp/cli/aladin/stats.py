"""What an index holds: pictures, bytes, the model, when it was made, and the files that could not be read."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro


@dataclass
class Options:
    index: tyro.conf.Positional[Path]
    """Folder of the index."""
    json: bool = False
    """Print one JSON object and nothing else."""


def run(options: Options) -> None:
    from mjp.aladin.index.intake import printable
    from mjp.aladin.index.store import Index

    index = Index(options.index)
    facts = _facts(index)
    if options.json:
        print(json.dumps(facts, indent=2))
        return
    each = f", {facts['bytes'] / facts['pictures'] / 1e3:.1f} kB per picture" if facts["pictures"] else ""
    print(f"pictures    {facts['pictures']}, at {facts['files']} paths")
    print(f"size        {facts['bytes'] / 1e6:.1f} MB{each}")
    print(f"model       {facts['model']}, from {printable(facts['source'])}")
    print(f"mask ratio  {facts['mask_ratio']:g}")
    print(f"made        {facts['created']}, last changed {facts['changed']}")
    print(f"unreadable  {len(facts['unreadable'])}")
    for path, problem in facts["unreadable"].items():
        print(f"  {path}: {problem}")


def _facts(index: Any) -> dict[str, Any]:
    from dataclasses import asdict
    from datetime import UTC, datetime

    from mjp.aladin.index.intake import printable

    files = index.catalogue.files()
    changed = datetime.fromtimestamp(index.catalogue.path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    return {
        **{"pictures": len(index), "files": sum(file.id is not None for file in files), "bytes": index.bytes()},
        **asdict(index.facts),
        "changed": changed,
        "unreadable": {printable(file.path): file.problem for file in files if file.problem is not None},
    }
