"""Modules without dropout for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout, whatever mode its parts are in; afterwards each as before."""
    training = [module for module in model.modules() if module.training]  # empty in use: nothing to do
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True
