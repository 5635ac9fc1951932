"""Processes of their own, for what must be killed, left or shared between two."""

import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

PATIENCE = 120  # seconds until a process counts as stuck; none needs more than a few

# a server that has imported everything forks processes in no time, from a state in which nothing was computed yet
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["mjp.training.engine", "mjp.aladin.training.engine", "mjp.segmentation.train", "segmentation_models_pytorch"]
)


def start(task: Callable[..., None], *arguments: Any) -> Any:
    process = PROCESSES.Process(target=task, args=arguments)
    process.start()
    return process


def exit_code(process: Any) -> int | None:
    """How a process ended; None if it was stuck."""
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        return None
    return process.exitcode


def in_two_processes(task: Callable[..., None], *arguments: Any) -> list[int | None]:
    """Run a task as torchrun would, in two processes; how they ended."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    both = [start(_as_rank, rank, port, task, *arguments) for rank in (0, 1)]
    return [exit_code(process) for process in both]


def _as_rank(rank: int, port: int, task: Callable[..., None], *arguments: Any) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    task(*arguments)
