"""Several updates of one client: between its rounds the server's model learns from other clients' pictures."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mjp.evaluation.batches import find_pictures
from mjp.method.model import MJP
from mjp.models import Subject
from mjp.pictures.tensors import normalise
from mjp.privacy.samples import sample_pictures, spread_numbers


@dataclass(frozen=True)
class Federation:
    """How often a client takes part with the same picture, and what the others have."""

    rounds: int
    images: Tensor  # (n, 3, H, W) normalised, of other clients
    labels: Tensor  # (n,)

    def networks(self, network: MJP, generator: torch.Generator) -> Iterator[MJP]:
        return networks_of_rounds(network, self.images, self.labels, self.rounds, generator)


def public_federation(rounds: int, subject: Subject) -> Federation:
    """The other clients have embedded pictures."""
    source = find_pictures("embedded")
    pictures = sample_pictures(source, OTHERS, subject.size)
    classes = int(getattr(subject.model.model, "num_classes", 1))
    labels = torch.tensor([source.labels[number] for number in spread_numbers(len(source), OTHERS)]) % classes
    return Federation(rounds, normalise(pictures, subject.mean, subject.std), labels)


OTHERS = 64  # pictures on which the model trains between two rounds
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
