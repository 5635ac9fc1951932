"""How to share the cores among trainings: a process per core with one thread each, as `mjp reproduce` does by default,
or one process with a thread per core.

Both train the model of the mini_cifar10 recipe on the same number of pictures, as a cell of `mjp reproduce` would, and
take turns.
"""

import os
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from mjp.bench.timing import seconds
from mjp.bench.train import training_step
from mjp.common.progress import track
from mjp.reproduce.kernels import use_fast_kernels

STEPS = 4  # of every process in one turn; a lone process takes as many as all of them together
REPEATS = 5


def measure(repeats: int, _: int) -> dict[str, Any]:
    """jobs_vs_threads_ratio: steps a second of one process per core over those of one thread per core."""
    cores = os.cpu_count() or 1
    with ExitStack() as stack:
        alone, (together,) = ([stack.enter_context(_process()) for _ in range(count)] for count in (cores, 1))
        turns = {"jobs": partial(_train, alone, 1, STEPS), "threads": partial(_train, [together], cores, STEPS * cores)}
        times: dict[str, list[float]] = {name: [] for name in turns}
        for turn in track(range(repeats + 1), "turns"):
            for name in turns if turn % 2 else reversed(turns):
                times[name].append(seconds(turns[name]))
    jobs, threads = (statistics.median(values[1:]) for values in times.values())  # the first warms up
    return {
        "jobs_vs_threads_ratio": round(threads / jobs, 3),
        "jobs_steps_per_second": round(STEPS * cores / jobs, 2),
        "threads_steps_per_second": round(STEPS * cores / threads, 2),
        "cores": cores,
        "jobs_repeats": repeats,
    }


def lines(figures: dict[str, Any]) -> list[str]:
    cores, ratio = figures["cores"], figures["jobs_vs_threads_ratio"]
    return [f"{cores} processes of one thread   {ratio:.2f} × the steps a second of one process with {cores} threads"]


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def _train(processes: list[ProcessPoolExecutor], threads: int, steps: int) -> None:
    for future in [process.submit(_take_steps, threads, steps) for process in processes]:
        future.result()


def _take_steps(threads: int, steps: int) -> None:
    """Runs in a process of its own."""
    torch.set_num_threads(threads)
    step = _first_step()
    for _ in range(steps):
        step()


@cache  # a process trains one model
def _first_step() -> Callable[[], None]:
    use_fast_kernels()
    with tempfile.TemporaryDirectory() as folder:
        return training_step("paper", Path(folder))
