"""Timing alternatives fairly: they take turns, so that a disturbance hits all of them."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from mjp.common.progress import track


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def processor_seconds(action: Callable[[], object]) -> float:
    """What the process computed for, on all its threads: other processes that wait for the same cores do not count."""
    began = time.process_time()
    action()
    return time.process_time() - began


def medians(repeats: int, what: str, **actions: Callable[[], object]) -> dict[str, float]:
    """Milliseconds. The order turns with every repeat, so that none always comes first."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    names = list(actions)
    for turn in track(range(repeats + 1), what):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times[name].append(seconds(actions[name]))
    return {name: 1e3 * statistics.median(values[1:]) for name, values in times.items()}  # the first warms up


def minima(
    repeats: int,
    *,
    every_tenth: str | None = None,
    clock: Callable[[Callable[[], object]], float] = seconds,
    **actions: Callable[[], object],
) -> dict[str, float]:
    """Milliseconds of each action; the one named by `every_tenth` takes part in every tenth turn only."""
    best = dict.fromkeys(actions, float("inf"))
    for action in actions.values():
        action()
    for turn in range(repeats):
        for name, action in actions.items():
            if name != every_tenth or turn % 10 == 0:
                best[name] = min(best[name], 1e3 * clock(action))
    return best


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
