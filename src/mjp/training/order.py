"""In which order pictures are seen, and every seed of a run: pure functions of (seed, epoch, step), no state.

So a run that resumes at step n draws what it would have drawn, and two processes see together what one would see alone.
"""

from collections.abc import Iterator, Sized
from typing import Any

from mjp.common.seeds import ORDER, SAMPLE, derive_seed, epoch_permutation


def epoch_length(size: int, repeats: int) -> int:
    """How many pictures one epoch shows: all, or with timm's repeated augmentation whole groups of 256 of them."""
    return size // 256 * 256 if repeats > 1 and size >= 256 else size


def epoch_order(data: Sized, seed: int, epoch: int, repeats: int) -> list[int]:
    """The numbers of the pictures of one epoch; with repeated augmentation each appears `repeats` times in a row."""
    if repeats > 1:
        from timm.data.distributed_sampler import RepeatAugSampler

        group = 256 if len(data) >= 256 else 1
        sampler = RepeatAugSampler(data, num_replicas=1, rank=0, num_repeats=repeats, selected_round=group)
        sampler.set_epoch(derive_seed(seed, epoch, ORDER))
        return list(sampler)
    return epoch_permutation(len(data), seed, epoch)


class Batches:
    """The batches that one process loads in one epoch, from the `start`-th optimizer step on.

    A step takes `world × accumulate × batch` pictures from the order. Its k-th micro-batch in process r holds every
    (world × accumulate)-th of them, from k·world + r on: whoever computes them, a step sees the same pictures.
    """

    def __init__(
        self, order: list[int], *, seed: int, epoch: int, batch: int, accumulate: int, rank: int, world: int, start: int
    ) -> None:
        self.order, self.seed, self.epoch, self.start = order, seed, epoch, start
        self.batch, self.accumulate, self.rank, self.world = batch, accumulate, rank, world
        self.steps = len(order) // (batch * self.shares)

    @property
    def shares(self) -> int:
        return self.world * self.accumulate

    def __len__(self) -> int:
        return (self.steps - self.start) * self.accumulate

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """Lists of (number, seed of its augmentation)."""
        size = self.batch * self.shares
        for step in range(self.start, self.steps):
            for micro in range(self.accumulate):
                places = range(step * size + self.share(micro), (step + 1) * size, self.shares)
                yield [(self.order[p], derive_seed(self.seed, self.epoch, p, SAMPLE)) for p in places]

    def share(self, micro: int) -> int:
        """Which rows of a step's plan belong to this process's `micro`-th batch: share, share + shares, ..."""
        return micro * self.world + self.rank


def rows_of(plan: Any, share: int, shares: int) -> Any:
    """The part of a whole step's plan that belongs to one micro-batch."""
    if shares == 1:
        return plan
    mask, permutation, inverse = (t[share::shares] for t in plan[:3])
    pixels = None if plan.pixels is None else plan.pixels[share::shares]
    return plan._replace(mask=mask, permutation=permutation, inverse=inverse, pixels=pixels)
