"""Matches as text and as JSON."""

from datetime import datetime
from typing import Any

from mjp.aladin.index.duplicates import Group
from mjp.aladin.search.explain import Word
from mjp.aladin.search.two_stage import Match
from mjp.common.terminal import as_text, printable


def match_table(matches: list[Match], words: dict[str, list[Word]]) -> str:
    """One line per match, and below it the best patch of each word, if that was explained."""
    lines = [f"{'':>4}  {'cosine':>7}  {'rank':>5}  {'alignment':>9}  file"]
    for place, match in enumerate(matches, 1):
        score = "–" if match.alignment is None else f"{match.alignment:.3f}"
        path = printable(match.paths[0]) if match.paths else match.id
        more = f"  (and {len(match.paths) - 1} more)" if len(match.paths) > 1 else ""
        lines.append(f"{place:>4}  {match.cosine:>7.3f}  {match.rank:>5}  {score:>9}  {path}{more}")
        if match.id in words:
            lines.append(" " * 34 + ", ".join(map(_word, words[match.id])))
    return "\n".join(lines)


def _word(word: Word) -> str:
    """A word, what it adds, and where it points to, if it points anywhere."""
    place = "" if not word.peaked else " @ hidden" if word.hidden else f" @ {word.patch}"
    return f"{word.text} {word.score:.2f}{place}"


def match_entries(matches: list[Match], words: dict[str, list[Word]]) -> list[dict[str, Any]]:
    """Matches as JSON, with the words that were explained; the date in local time."""
    entries = []
    for match in matches:
        entry = {**match._asdict(), "paths": [as_text(path) for path in match.paths], "date": iso_date(match.date)}
        if match.id in words:
            entry["words"] = word_entries(words[match.id])
        entries.append(entry)
    return entries


def iso_date(nanoseconds: int) -> str:
    """A time since 1970 as 2026-05-17T14:03:59, in local time."""
    return datetime.fromtimestamp(nanoseconds / 1e9).isoformat(timespec="seconds")


def word_entries(words: list[Word]) -> list[dict[str, Any]]:
    return [{"word": word.text, "score": word.score, "patch": word.place} for word in words]


def group_text(groups: list[Group]) -> str:
    """Groups of near-duplicates, a path on a line, and a blank line between them."""
    blocks = []
    for group in groups:
        paths = [printable(path) for entry in group.pictures for path in entry.paths]
        blocks.append("\n".join([f"{group.similarity:.3f}", *(f"  {path}" for path in paths)]))
    return "\n\n".join([*blocks, f"{len(groups)} groups"])


def group_entries(groups: list[Group]) -> list[dict[str, Any]]:
    return [
        {
            "similarity": group.similarity,
            "pictures": [
                {"id": entry.id, "paths": [as_text(path) for path in entry.paths]} for entry in group.pictures
            ],
        }
        for group in groups
    ]
