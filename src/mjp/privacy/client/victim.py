"""The client: turns pictures and labels into an update. What must not leave it is a Secret, which only scoring sees.

    network = shared_network(model, defence)                      public: the architecture and weights of both sides
    update, secret = make_update(network, images, labels, defence, generator=generator)

The jigsaw is drawn from the client's own generator or secret key: a model's own generator is seeded by its public
settings, and whoever knows those could draw the same plan.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mjp.common.errors import InputError
from mjp.common.secret_key import SecretKey
from mjp.method.model import MJP
from mjp.method.plan import Plan, identity_plan
from mjp.method.shuffle import shuffle_image
from mjp.privacy.combination import Combination
from mjp.privacy.defence import LocalSteps
from mjp.privacy.info import UpdateInfo
from mjp.privacy.update import Update


@dataclass(frozen=True)
class Secret:
    """What the client keeps: its pictures as the network got them, their labels, and the jigsaw of every step."""

    images: Tensor  # (B, 3, H, W), normalised
    labels: Tensor  # (B,)
    plans: tuple[Plan, ...]

    @property
    def mask(self) -> Tensor:
        """(B, N) the patches that are masked in every step: a patch that is unmasked once leaks there."""
        return torch.stack([plan.mask for plan in self.plans]).all(0)

    @property
    def shuffled(self) -> Tensor:
        """x̃, the pictures as the first jigsaw left them."""
        plan = self.plans[0]
        patch = self.images.shape[-2] // plan.grid[0], self.images.shape[-1] // plan.grid[1]
        return shuffle_image(self.images, plan, patch)


def make_update(
    network: MJP,
    images: Tensor,
    labels: Tensor,
    defence: Combination,
    *,
    generator: torch.Generator,
    key: SecretKey | None = None,
    **info: Any,
) -> tuple[Update, Secret]:
    """The update that leaves the client, and the secret that does not. `info` may state mean and std."""
    defence.check_installed()
    if defence.needs_key and key is None:
        raise InputError(f"defence {defence.text!r} draws from the client's secret key: pass one")
    if len(images) != defence.batch or len(labels) != len(images):
        raise InputError(
            f"defence {defence.text!r} is for {defence.batch} pictures at a time, there are {len(images)} with "
            f"{len(labels)} labels"
        )
    height, width = images.shape[-2:]
    public: dict[str, Any] = {
        **info,
        "batch": len(images),
        "size": (height, width),
        "defence": defence.text,
        "localize_weight": network.config.localize_weight if network.localizer is not None else 0.0,
    }
    steps = defence.local_steps
    plans = tuple(_draw(network, images, defence, generator, key) for _ in range(steps.number if steps else 1))
    images = defence.prepare(
        images, UpdateInfo(**public).std, key
    )  # afterwards: a jigsaw belongs to the picture itself
    secret = Secret(images, labels, plans)
    if steps is None:
        leaving = drop_withheld(_gradients(network, images, labels, plans[0], defence, generator), defence)
        return Update(defence.perturb(leaving, generator), UpdateInfo(**public)), secret
    trained = _train(network, secret, defence, steps, generator)
    before = {name: p.detach() for name, p in network.named_parameters()}
    moved = {name: trained[name] - before[name] for name in trained}
    moved = defence.perturb(drop_withheld(moved, defence), generator)
    weights = {name: before[name] + change for name, change in moved.items()}
    public |= {"kind": "fedavg", "steps": steps.number, "lr": steps.lr}
    return Update(weights, UpdateInfo(**public)), secret


def _draw(
    network: MJP, images: Tensor, defence: Combination, generator: torch.Generator, key: SecretKey | None
) -> Plan:
    grid = network.grid(images)
    plan = defence.draw_plan(images, grid, generator, key)
    return identity_plan(len(images), grid, device=images.device) if plan is None else plan


def _gradients(
    network: MJP, images: Tensor, labels: Tensor, plan: Plan, defence: Combination, generator: torch.Generator
) -> dict[str, Tensor]:
    part = defence.gradients
    if part and part.defence.gradients:
        return part.defence.gradients(network, images, labels, plan, part.number, generator)
    out = network(images, plan)
    loss = cross_entropy(out.logits, labels) + network.config.localize_weight * out.dal
    named = {name: p for name, p in network.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(loss, list(named.values()), materialize_grads=True)
    return dict(zip(named, gradients, strict=True))


def _train(
    network: MJP, secret: Secret, defence: Combination, steps: LocalSteps, generator: torch.Generator
) -> dict[str, Tensor]:
    """Weights after the local steps of plain SGD, each with its jigsaw."""
    local = copy.deepcopy(network)
    for plan in secret.plans:
        gradients = _gradients(local, secret.images, secret.labels, plan, defence, generator)
        with torch.no_grad():
            for name, parameter in local.named_parameters():
                if name in gradients and defence.trains(name):
                    parameter.sub_(steps.lr * gradients[name])
    return {name: p.detach() for name, p in local.named_parameters() if p.requires_grad}


def drop_withheld(tensors: dict[str, Tensor], defence: Combination) -> dict[str, Tensor]:
    """Leave out what the defence freezes or withholds."""
    return {name: tensor for name, tensor in tensors.items() if defence.sends(name)}
