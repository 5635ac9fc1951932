"""What clients send in these tests: the weights of a tiny ViT after one step on one picture of CIFAR-10."""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from clients import normalise, pictures, prior, tiny
from mjp.federated.auditor import LeakAuditor
from mjp.method.model import MJP

LR = 0.05


@cache
def model() -> MJP:
    return tiny(dtype=torch.float32).eval()


@cache
def auditor() -> LeakAuditor:
    return make_auditor()


def make_auditor(**settings: Any) -> LeakAuditor:
    return LeakAuditor(model(), **{"attacks": ("direct", "span"), "prior": prior(), **settings})


def before() -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model().weights().items()}


def after(count: int = 1, *, start: int = 3) -> dict[str, Tensor]:
    """The weights after one step of SGD on `count` pictures."""
    network = model()
    images = normalise(pictures(count, start=start)).float()
    loss = cross_entropy(network(images), torch.arange(4, 4 + count) % 10)
    named = dict(network.named_parameters())
    gradients = torch.autograd.grad(loss, list(named.values()), materialize_grads=True)
    steps = zip(named.items(), gradients, strict=True)
    return {name: (weight - LR * gradient).detach() for (name, weight), gradient in steps}
