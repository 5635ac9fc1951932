"""Several updates of one client: between its rounds the server's model learns from other clients' pictures."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mjp.method.model import MJP


@dataclass(frozen=True)
class Federation:
    """How often a client takes part with the same picture, and what the others have."""

    rounds: int
    images: Tensor  # (n, 3, H, W) normalised, of other clients
    labels: Tensor  # (n,)

    def networks(self, network: MJP, generator: torch.Generator) -> Iterator[MJP]:
        return networks_of_rounds(network, self.images, self.labels, self.rounds, generator)


STEPS = 4  # of SGD between two rounds
LR = 0.01
BATCH = 4


def networks_of_rounds(
    network: MJP, images: Tensor, labels: Tensor, rounds: int, generator: torch.Generator
) -> Iterator[MJP]:
    """The shared network of every round; (n, 3, H, W) normalised images and their labels are those of other clients."""
    network = copy.deepcopy(network)
    for number in range(rounds):
        for _ in range(STEPS if number else 0):
            rows = torch.randint(len(images), (BATCH,), generator=generator)
            _train(network, images[rows].to(next(network.parameters())), labels[rows])
        yield copy.deepcopy(network)


def _train(network: MJP, images: Tensor, labels: Tensor) -> None:
    """One step of plain SGD, without jigsaw."""
    named = {name: p for name, p in network.named_parameters() if p.requires_grad}
    loss = cross_entropy(network(images), labels)
    gradients = torch.autograd.grad(loss, list(named.values()), materialize_grads=True)
    with torch.no_grad():
        for parameter, gradient in zip(named.values(), gradients, strict=True):
            parameter.sub_(LR * gradient)
