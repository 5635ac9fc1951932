"""What an index contains, for people and as JSON."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from mjp.aladin.index.chunks import chunk_path
from mjp.aladin.index.store import Index
from mjp.common.terminal import as_text, printable


def index_stats(index: Index) -> dict[str, Any]:
    """Counts, size, model, dates, unreadable files, and damage. Reads every chunk completely."""
    files = index.catalogue.files()
    changed = datetime.fromtimestamp(index.catalogue.path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    damaged = {chunk_path(index.folder, n).name: reason for n, reason in sorted(index.damaged_chunks().items())}
    return {
        "pictures": len(index),
        "files": sum(file.id is not None for file in files),
        "bytes": index.bytes(),
        **asdict(index.config),
        "changed": changed,
        "unreadable": {as_text(file.path): file.problem for file in files if file.problem is not None},
        "damaged": damaged,
        "files_without_codes": len(index.catalogue.lost()),
    }


def stats_text(index: Index, stats: dict[str, Any]) -> str:
    per_picture = f", {stats['bytes'] / stats['pictures'] / 1e3:.1f} kB per picture" if stats["pictures"] else ""
    lines = [
        f"pictures    {stats['pictures']}, at {stats['files']} paths",
        f"size        {stats['bytes'] / 1e6:.1f} MB{per_picture}",
        f"model       {stats['model']}, from {printable(stats['source'])}",
        f"mask ratio  {stats['mask_ratio']:g}",
        f"created     {stats['created']}, last changed {stats['changed']}",
        f"unreadable  {len(stats['unreadable'])}",
        *(f"  {printable(path)}: {problem}" for path, problem in stats["unreadable"].items()),
    ]
    if stats["damaged"] or stats["files_without_codes"]:
        count = stats["files_without_codes"]
        lines.append(f"damaged     {len(stats['damaged'])} chunks" + (f", {count} files without codes" * bool(count)))
        lines += [f"  {name}: {reason}" for name, reason in stats["damaged"].items()]
        lines.append(f"            repair: mjp aladin index PICTURES -o {index.folder}")
    return "\n".join(lines)
