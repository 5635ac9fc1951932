"""One process or many: torchrun sets the environment, this reads it."""

import gc
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist

from mjp.common.device import pick_device


class World(NamedTuple):
    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process writes files and talks to the person."""
        return self.rank == 0

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def gather(self, values: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of all processes, whose sizes may differ; without gradients."""
        if self.size == 1:
            return [values.detach()]
        sizes = [torch.zeros(values.ndim, dtype=torch.int64, device=self.device) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor(values.shape, device=self.device))
        shapes = [tuple(slice(size) for size in shape.tolist()) for shape in sizes]
        padded = values.new_zeros(torch.stack(sizes).amax(0).tolist())
        padded[shapes[self.rank]] = values.detach()
        everyone = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(everyone, padded)
        return [tensor[shape] for tensor, shape in zip(everyone, shapes, strict=True)]

    def agree(self, answer: bool) -> bool:
        """What the leading process says: clocks differ, and all must do the same."""
        if self.size > 1:
            said = torch.tensor(answer, device=self.device)
            dist.broadcast(said, 0)
            return bool(said)
        return answer

    def unite(self, names: set[str]) -> set[str]:
        """The names that any process has."""
        if self.size > 1:
            everyone: list[set[str]] = [set()] * self.size
            dist.all_gather_object(everyone, names)
            return set[str]().union(*everyone)
        return names

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


@contextmanager
def join(device: str) -> Iterator[World]:
    """Join the processes that torchrun started, or be the only one."""
    size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    chosen = pick_device(device, int(os.environ.get("LOCAL_RANK", 0)))
    if size > 1:
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield World(rank, size, chosen)
    finally:
        if size > 1:
            _free_what_is_done()
            dist.destroy_process_group()


def _free_what_is_done() -> None:
    """Free DDP before its process group, also what cycles and the frames of an error hold of it.

    A DDP that outlives the group destroys it with Python's lock held; a thread of gloo that still wants that lock to
    free its last piece of work then makes both wait forever.
    """
    if error := sys.exception():
        traceback.clear_frames(error.__traceback__)
    gc.collect()
