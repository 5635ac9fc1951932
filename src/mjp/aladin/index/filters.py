"""Which pictures a search is limited to: a folder, when they were taken, when they were added to the index."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from mjp.aladin.index.catalogue import prefix_of
from mjp.common.errors import InputError, shorten
from mjp.pictures.dates import bounded

UNITS = {"d": timedelta(days=1), "w": timedelta(weeks=1)}


@dataclass(frozen=True)
class Filter:
    """Times are nanoseconds since 1970. A picture at several paths passes if one of them is in the folder."""

    folder: Path | None = None  # absolute
    since: int | None = None  # taken then or later; without a date in the file, last changed
    until: int | None = None  # taken before
    added_since: int | None = None

    def __bool__(self) -> bool:
        return self != EVERYTHING

    def condition(self) -> tuple[str, list[object]]:
        """The same in SQL, about the files f of a picture taken together."""
        parts: list[str] = []
        values: list[object] = []
        if self.folder is not None:
            parts.append("MAX(f.path = ? OR substr(f.path, 1, ?) = ?)")
            values += prefix_of(self.folder)
        date = "COALESCE(MIN(f.taken), MIN(f.modified))"
        limits = ((f"{date} >= ?", self.since), (f"{date} < ?", self.until), ("MIN(f.added) >= ?", self.added_since))
        parts += [text for text, limit in limits if limit is not None]
        values += [limit for _, limit in limits if limit is not None]
        return " AND ".join(parts), values


EVERYTHING = Filter()


def make_filter(
    folder: str | Path | None = None,
    since: str | None = None,
    until: str | None = None,
    added_since: str | None = None,
) -> Filter:
    """From what a person typed: a folder, and days as 2026, 2026-05, 2026-05-17, or 7d and 2w for days and weeks ago.

    `until` includes the day, month or year that it names.
    """
    return Filter(
        Path(folder).expanduser().resolve() if folder else None,
        read_day(since, "--since")[0] if since else None,
        read_day(until, "--until")[1] if until else None,
        read_day(added_since, "--added-since")[0] if added_since else None,
    )


def read_day(text: str, flag: str) -> tuple[int, int]:
    """The first nanosecond of a day, month or year in local time, and the first one after it."""
    ago = re.fullmatch(r"(\d{1,5})([dw])", text)
    date = re.fullmatch(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", text)
    try:
        if ago:
            start = datetime.now() - int(ago[1]) * UNITS[ago[2]]
            return _nanoseconds(start), _nanoseconds(start)
        if date is None:
            raise ValueError(text)
        year, month, day = (int(part) if part else None for part in date.groups())
        start = datetime(year or 1, month or 1, day or 1)
        return _nanoseconds(start), _nanoseconds(_after(start, month, day))
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(
            f"{flag} {shorten(text)} is not a date: write 2026, 2026-05, 2026-05-17, or 7d for seven days ago"
        ) from error


def _after(start: datetime, month: int | None, day: int | None) -> datetime:
    if start.year == datetime.max.year:
        return datetime.max
    if day is not None:
        return start + timedelta(days=1)
    if month is not None:
        return (start + timedelta(days=31)).replace(day=1)
    return start.replace(year=start.year + 1)


def _nanoseconds(time: datetime) -> int:
    return bounded(int(time.timestamp()) * 10**9)
