"""Compute the cells of a grid, several at a time, one thread each.

One process per core beats one process with several threads on small models, and a killed grid loses at most what its
running cells did since their last checkpoint: a cell whose file exists is never computed again, and a cell that was
interrupted resumes. However the grid ends, its cells end with it: none goes on computing unseen. Cells are independent,
so `--shard i/n` splits them over machines; the files are all that has to be brought together.
"""

import math
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import TypeVar

from mjp.common.errors import InputError
from mjp.common.progress import duration

Item = TypeVar("Item")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
KILLED = "its process was killed, perhaps for want of memory: run the command again, with fewer --jobs if it recurs"


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count`, counted from 1."""

    index: int = 1
    count: int = 1

    def take(self, items: Sequence[Item]) -> list[Item]:
        return list(items[self.index - 1 :: self.count])


def parse_shard(text: str) -> Shard:
    """Read `i/n`."""
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise InputError(f"--shard takes i/n with 1 <= i <= n, as in 2/4, not {text!r}")
    return Shard(int(index), int(count))


def turns(cells: int, jobs: int) -> int:
    """How many cells one slot has to compute, at most, if all take equally long."""
    return math.ceil(cells / jobs)


def _end_with_parent() -> None:
    """Let this process end when the one that started it does, even by a kill that it cannot pass on."""
    parent = parent_process()
    assert parent is not None  # only called in the processes of the pool

    def wait_and_leave() -> None:
        parent.join()
        os._exit(1)  # from a thread, nothing else ends the process; files are written under temporary names

    Thread(target=wait_and_leave, daemon=True).start()


def _start(task: Callable[[int], float], slot: int) -> Future[float]:
    """Run a task in a process of its own, which ends with it: what kills one task leaves the others alone."""
    process = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent)
    future = process.submit(task, slot)
    process.shutdown(wait=False)  # no further task comes; this one is finished
    return future


def run_all(
    tasks: Mapping[str, Callable[[int], float]], *, jobs: int, minutes: float, say: Callable[[str], None]
) -> None:
    """Run every task in a process of its own, `jobs` at a time; a task returns how many seconds it took.

    It is called with the number of its slot, 0 … jobs − 1: tasks that run at the same time have different ones, so a
    slot can stand for a GPU. A task that fails does not stop the others; the first failure is raised in the end.
    """
    for name in THREADS:
        os.environ[name] = "1"  # the children inherit it before they import torch
    others = set(active_children())
    try:
        failures = _run_in_slots(tasks, jobs=min(jobs, len(tasks)), minutes=minutes, say=say)
    except BaseException:  # an interrupt, which may have reached this process alone
        for process in set(active_children()) - others:
            process.terminate()
        raise
    if failures:
        name, error = next(iter(failures.items()))
        raise InputError(f"{len(failures)} of {len(tasks)} cells failed, {name} first: {error}") from error


def _run_in_slots(
    tasks: Mapping[str, Callable[[int], float]], *, jobs: int, minutes: float, say: Callable[[str], None]
) -> dict[str, BaseException]:
    """Run the tasks, and say how it goes; the errors of those that failed."""
    failures: dict[str, BaseException] = {}
    durations: list[float] = []
    started = time.monotonic()
    waiting = iter(tasks.items())
    pending: dict[Future[float], tuple[str, int]] = {}  # name and slot

    def start_next(slot: int) -> None:
        for name, task in islice(waiting, 1):
            pending[_start(task, slot)] = (name, slot)

    for slot in range(jobs):
        start_next(slot)
    plural = "" if len(tasks) == 1 else "s"
    expected = duration(60 * minutes * turns(len(tasks), jobs))
    say(f"{len(tasks)} cell{plural} to compute, {jobs} at a time; about {expected}")
    while pending:
        done, _ = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            name, slot = pending.pop(future)
            start_next(slot)
            if error := future.exception():
                failures[name] = InputError(KILLED) if isinstance(error, BrokenProcessPool) else error
                say(f"{name} failed: {_reason(failures[name])}")
                continue
            durations.append(future.result())
            finished = len(durations) + len(failures)
            left = sum(durations) / len(durations) * turns(len(tasks) - finished, jobs)
            say(
                f"{name} done in {duration(durations[-1])}; {finished} of {len(tasks)} after "
                f"{duration(time.monotonic() - started)}, about {duration(left)} left"
            )
    return failures


def _reason(error: BaseException) -> str:
    """One sentence for what the user can mend; where it happened for the rest."""
    return str(error) if isinstance(error, InputError) else "".join(traceback.format_exception(error))
