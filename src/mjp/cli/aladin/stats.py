"""What an index holds: pictures, bytes, the model, when it was made, and the files that could not be read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from mjp.common.results import Results


@dataclass
class Options:
    index: tyro.conf.Positional[Path]
    """Folder of the index."""


def run(options: Options) -> Results:
    from mjp.aladin.index.intake import printable
    from mjp.aladin.index.store import Index
    from mjp.common.results import make_results

    index = Index(options.index)
    facts = _facts(index)
    each = f", {facts['bytes'] / facts['pictures'] / 1e3:.1f} kB per picture" if facts["pictures"] else ""
    print(f"pictures    {facts['pictures']}, at {facts['files']} paths")
    print(f"size        {facts['bytes'] / 1e6:.1f} MB{each}")
    print(f"model       {facts['model']}, from {printable(facts['source'])}")
    print(f"mask ratio  {facts['mask_ratio']:g}")
    print(f"made        {facts['created']}, last changed {facts['changed']}")
    print(f"unreadable  {len(facts['unreadable'])}")
    for path, problem in facts["unreadable"].items():
        print(f"  {path}: {problem}")
    return make_results("aladin stats", options, facts)


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
