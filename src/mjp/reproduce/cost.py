"""What MJP adds to a training step of a trained model: it and a plain twin take turns, in processor time.

Processor time of the thread that computes does not count what other programs take from the machine; so the grid can run
beside other work.
"""

import copy
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mjp.method.config import variant
from mjp.method.model import MJP

BATCH = 16
TURNS = 15


def step_cost(model: MJP, side: int) -> float:
    """Median over turns of (seconds of a step) / (seconds of the plain twin's step) − 1."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(BATCH, 3, side, side, generator=generator)
    plain = MJP(copy.deepcopy(model.unwrap()), variant("A"))
    steps = [_training_step(network, images) for network in (copy.deepcopy(model), plain)]
    for step in steps:  # warms up
        step()
    ratios = [_seconds(steps[0]) / _seconds(steps[1]) for _ in range(TURNS)]
    return statistics.median(ratios) - 1


def _training_step(model: MJP, images: Tensor) -> Callable[[], None]:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    labels = torch.zeros(len(images), dtype=torch.long)

    def step() -> None:
        optimizer.zero_grad()
        out = model(images)
        (cross_entropy(out.logits, labels) + model.config.localize_weight * out.dal).backward()
        optimizer.step()

    return step


def _seconds(step: Callable[[], None]) -> float:
    began = time.thread_time()
    step()
    return time.thread_time() - began
