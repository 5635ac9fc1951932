"""The embedded pictures as clients have them, and the accuracy of a global model on the others."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from mjp.common.seeds import derive_seed
from mjp.federated.client import load_weights
from mjp.federated.partition import dirichlet_shares
from mjp.method.model import MJP
from mjp.models import Subject
from mjp.pictures.crop import eight_bit_square
from mjp.pictures.sets import Part, Pictures, embedded, limited
from mjp.pictures.tensors import normalise
from mjp.privacy.samples import spread_numbers
from mjp.privacy.server.public_pictures import PUBLIC

Labelled = tuple[Tensor, Tensor]  # (n, 3, H, W) in [0, 1], (n,)
DIVISION = 17  # what the seed of a division is for


def client_share(
    number: int, clients: int, size: tuple[int, int], *, alpha: float, least: int, most: int, seed: int
) -> Labelled:
    """The pictures of one of several clients, by a Dirichlet division that all of them compute alike; `most` of them.

    The pictures on which the attacker's prior is measured belong to nobody.
    """
    source = private_pictures()
    generator = torch.Generator().manual_seed(derive_seed(seed, DIVISION))
    shares = dirichlet_shares(source.labels, clients, alpha=alpha, least=least, generator=generator)
    order = torch.randperm(len(shares[number]), generator=torch.Generator().manual_seed(derive_seed(seed, number)))
    return load_pictures(source, [shares[number][k] for k in order[:most].tolist()], size)


def private_pictures() -> Part:
    """The embedded training pictures without those on which the attacker's prior is measured."""
    source = embedded("train")
    public = set(spread_numbers(len(source), PUBLIC))
    return Part(source, [number for number in range(len(source)) if number not in public])


def validation_pictures(count: int, size: tuple[int, int]) -> Labelled:
    """At most `count` embedded validation pictures, spread over the classes."""
    if count == 0:
        return torch.zeros(0, 3, *size), torch.zeros(0, dtype=torch.long)
    source = limited(embedded("val"), count)
    return load_pictures(source, range(len(source)), size)


def load_pictures(source: Pictures, numbers: Iterable[int], size: tuple[int, int]) -> Labelled:
    numbers = list(numbers)
    pictures = torch.stack([eight_bit_square(source.load(number), size) for number in numbers])
    return pictures, torch.tensor([source.labels[number] for number in numbers])


@torch.no_grad()
def accuracy_of(network: MJP, weights: Mapping[str, Tensor], subject: Subject, labelled: Labelled) -> float:
    """The share of right answers with these weights, without a jigsaw."""
    load_weights(network, weights)
    network.eval()
    right = 0
    for images, answers in zip(*(part.split(100) for part in labelled), strict=True):
        logits = network(normalise(images, subject.mean, subject.std))
        right += int((logits.argmax(1) == answers).sum())
    return right / len(labelled[1])
