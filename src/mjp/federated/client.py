"""One client of a federated training: its pictures, its secret key, and what it makes of the weights that come.

    client = LocalClient(subject, pictures, labels, defence="mjp:0.27+batch:8", lr=0.01, key=SecretKey.open(path))
    sent = client.train(weights, round_number=1)          sent.weights leave, sent.info is public

The jigsaws, the noise and everything else that is random come from the key, never from a seed that others know. They
also depend on the weights that came: a server that asks for a round twice with other weights gets other noise, or it
would cancel out.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.parameter_names import plain_name
from mjp.common.secret_key import SecretKey
from mjp.common.validate import number
from mjp.models import Subject
from mjp.pictures.tensors import normalise
from mjp.privacy.client.victim import make_update
from mjp.privacy.combination import parse
from mjp.privacy.network import shared_network


class Sent(NamedTuple):
    """What a client sends, and which of its pictures took part (which it does not send)."""

    weights: dict[str, Tensor]
    info: dict[str, Any]
    numbers: list[int]


class LocalClient:
    """A client that trains with plain SGD under a defence.

    Args:
        subject: The shared model, from `mjp.models.find_model`.
        pictures: (n, 3, H, W) in [0, 1], of the size that the model takes.
        labels: (n,) their classes.
        defence: What it does, as `mjp attack --defences` writes it; `batch:B` are its pictures in a step and `fedavg:K`
            its steps in a round, one each by default.
        lr: Learning rate of the steps.
        key: Its secret.
    """

    def __init__(
        self, subject: Subject, pictures: Tensor, labels: Tensor, *, defence: str, lr: float, key: SecretKey
    ) -> None:
        self.defence = parse(defence)
        self.defence.check_installed()
        self.lr = number("lr", lr, least=1e-12, most=1000)
        if len(pictures) < self.defence.batch:
            raise InputError(
                f"a client has {len(pictures)} pictures, {defence!r} needs {self.defence.batch} for a step"
            )
        self.subject = subject
        self.images = normalise(pictures, subject.mean, subject.std)
        self.labels = labels
        self.key = key
        self.steps = 1 if self.defence.local_steps is None else self.defence.local_steps.number
        one_step = tuple(part for part in self.defence.parts if part.defence.local_steps is None)
        self.one_step = replace(self.defence, parts=one_step)
        self.network = shared_network(subject.model, self.defence)

    def train(self, weights: Mapping[str, Tensor], round_number: int) -> Sent:
        """The local steps of one round, from 1. Every step takes the next pictures, in a circle."""
        load_weights(self.network, weights)
        parameters = dict(self.network.named_parameters())
        numbers = self.numbers(round_number)
        batch = self.defence.batch
        question = _digest(weights)
        for step in range(self.steps):
            part = numbers[step * batch : (step + 1) * batch]
            update, _ = make_update(
                self.network,
                self.images[part],
                self.labels[part],
                self.one_step,
                generator=self.key.generator("local step", round_number, question, step),
                key=self.key,
                mean=self.subject.mean,
                std=self.subject.std,
            )
            with torch.no_grad():
                for name, gradient in update.tensors.items():
                    parameters[name].sub_(self.lr * gradient.to(parameters[name]))
        after = {name: tensor.detach().clone() for name, tensor in self.network.weights().items()}
        return Sent(after, self._info(len(set(numbers))), sorted(set(numbers)))

    def numbers(self, round_number: int) -> list[int]:
        """The pictures of a round, in the order of its steps."""
        count = self.steps * self.defence.batch
        return [((round_number - 1) * count + k) % len(self.images) for k in range(count)]

    def _info(self, distinct: int) -> dict[str, Any]:
        return {
            "kind": "fedavg",
            "batch": distinct,
            "steps": self.steps,
            "lr": self.lr,
            "defence": self.defence.text,
            "size": self.subject.size,
            "mean": self.subject.mean,
            "std": self.subject.std,
            "localize_weight": 0.0 if self.network.localizer is None else self.network.config.localize_weight,
        }


def _digest(weights: Mapping[str, Tensor]) -> bytes:
    """The same for the same weights."""
    content = hashlib.sha256()
    for name in sorted(weights, key=plain_name):
        content.update(plain_name(name).encode() + b"\0")
        content.update(weights[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return content.digest()


def load_weights(network: Any, weights: Mapping[str, Tensor]) -> None:
    """Put weights by name into an MJP model; refuse those of another one."""
    names = {plain_name(name): name for name in network.weights()}
    given = {plain_name(name): tensor for name, tensor in weights.items()}
    if odd := sorted(names.keys() ^ given.keys()):
        raise InputError(f"the weights are of another model: only one of the two has {', '.join(odd[:3])}")
    try:
        network.load_state_dict({names[name]: tensor for name, tensor in given.items()})
    except RuntimeError as error:
        raise InputError("the weights are of another model: shapes differ") from error
