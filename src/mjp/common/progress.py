"""Progress of long work: a bar on a terminal, otherwise lines on standard error that a log file can keep.

for batch in track(loader, "evaluating"):          over something with a length
with Progress(steps, "epoch 1/8") as progress:     or by hand
    progress.advance(loss="2.31")
"""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import Any, TypeVar, cast

from tqdm import tqdm

INTERVAL = 20.0  # seconds between two lines
PATIENCE = 30.0  # seconds that a reader waits at most, unless a single step takes longer

T = TypeVar("T")


class Progress:
    """Counts steps of known total. `quiet` is for processes that do not lead."""

    def __init__(self, total: int, what: str, *, initial: int = 0, unit: str = "step", quiet: bool = False) -> None:
        self.total, self.what, self.initial, self.done, self.quiet = total, what, initial, initial, quiet
        self.began = self.reported = self.advanced = time.monotonic()
        self.bar: Any = None
        if not quiet and sys.stderr.isatty():
            self.bar = tqdm(total=total, initial=initial, desc=what, unit=unit, leave=False)

    def advance(self, steps: int = 1, **readings: str) -> None:
        """Count steps; the readings, if any, are shown beside them."""
        self.done += steps
        if self.bar is not None:
            if readings:
                self.bar.set_postfix(readings, refresh=False)
            self.bar.update(steps)
        elif not self.quiet and self._is_due():
            print(self._line(readings), file=sys.stderr, flush=True)

    def _is_due(self) -> bool:
        """Whether to print a line now: it is time, or another step as long as the last one would be too late."""
        now = time.monotonic()
        step, self.advanced = now - self.advanced, now
        if now - self.reported < INTERVAL and now - self.reported + step < PATIENCE:
            return False
        self.reported = now
        return True

    def _line(self, readings: dict[str, str]) -> str:
        seconds_per_step = (self.reported - self.began) / (self.done - self.initial)
        left = duration(seconds_per_step * max(self.total - self.done, 0))
        share = 100 * self.done / self.total if self.total else 100.0
        more = "".join(f", {name} {value}" for name, value in readings.items())
        return f"{self.what}: {share:.0f} % ({self.done:,} of {self.total:,}), {left} left{more}"

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()


def track(items: Iterable[T], what: str, *, total: int | None = None, quiet: bool = False) -> Iterator[T]:
    """The items one by one, with progress; `total` for items that have no length."""
    count = len(cast(Sized, items)) if total is None else total
    with Progress(count, what, quiet=quiet) as progress:
        for item in items:
            yield item
            progress.advance()


def say(text: str) -> None:
    """Print a line on standard output without tearing a bar."""
    tqdm.write(text)


def duration(seconds: float) -> str:
    """A length of time as people say it: 8 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
