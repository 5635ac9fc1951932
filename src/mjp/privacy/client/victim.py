"""The client: turns pictures and labels into an update. What must not leave it is a Secret, which only scoring sees.

    network = shared_network(model, defence)                      public: the architecture and weights of both sides
    update, secret = make_update(network, images, labels, defence, generator=generator)

The jigsaw is drawn from the client's own generator: a model's own one is seeded by its public settings, and whoever
knows those could draw the same plan.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mjp.common.errors import InputError
from mjp.method.model import MJP
from mjp.method.per_sample import per_sample_gradients
from mjp.method.plan import Plan, identity_plan, sample_plan
from mjp.method.shuffle import shuffle_image
from mjp.privacy.client.defences import CLIP, LEARNING_RATE, Defence, disguise
from mjp.privacy.update import Facts, Update, plain_name


@dataclass(frozen=True)
class Secret:
    """What the client keeps: its pictures as the network got them, their labels, and the jigsaw of every step."""

    images: Tensor  # (B, 3, H, W), normalised
    labels: Tensor  # (B,)
    plans: tuple[Plan, ...]

    @property
    def mask(self) -> Tensor:
        """(B, N) the patches that are masked in every step: whoever is unmasked once leaks there."""
        return torch.stack([plan.mask for plan in self.plans]).all(0)

    @property
    def shuffled(self) -> Tensor:
        """x̃, the pictures as the first jigsaw left them."""
        plan = self.plans[0]
        patch = self.images.shape[-2] // plan.grid[0], self.images.shape[-1] // plan.grid[1]
        return shuffle_image(self.images, plan, patch)


def shared_network(model: MJP, defence: Defence) -> MJP:
    """The model that server and client share under a defence: a copy, wrapped as the defence needs it."""
    config = defence.config(model.config)
    if config == model.config:
        return copy.deepcopy(model).eval()
    wrapped = MJP(copy.deepcopy(model.unwrap()), config).eval()
    if model.unknown is not None and wrapped.unknown is not None:  # trained with MJP: its E_unk and head come along
        wrapped.load_state_dict({**wrapped.state_dict(), **model.state_dict()})
    return wrapped.to(next(model.parameters()))


def make_update(
    network: MJP,
    images: Tensor,
    labels: Tensor,
    defence: Defence,
    *,
    generator: torch.Generator,
    facts: dict[str, Any] | None = None,
) -> tuple[Update, Secret]:
    """The update that leaves the client, and the secret that does not. `facts` may state mean and std."""
    if len(images) != defence.batch or len(labels) != len(images):
        raise InputError(
            f"defence {defence.text!r} is for {defence.batch} pictures at a time, there are {len(images)} with "
            f"{len(labels)} labels"
        )
    height, width = images.shape[-2:]
    public: dict[str, Any] = {
        **(facts or {}),
        "batch": len(images),
        "size": (height, width),
        "defence": defence.text,
        "localize_weight": network.config.localize_weight if network.localizer is not None else 0.0,
    }
    if not defence.steps:
        plan = _draw(network, images, defence, generator)
        leaving = _keep_home(_gradients(network, images, labels, plan, defence, generator), defence)
        return Update(disguise(leaving, defence, generator), Facts(**public)), Secret(images, labels, (plan,))
    trained, plans = _train(network, images, labels, defence, generator)
    before = {name: p.detach() for name, p in network.named_parameters()}
    moved = {name: trained[name] - before[name] for name in trained}
    moved = disguise(_keep_home(moved, defence), defence, generator)
    weights = {name: before[name] + change for name, change in moved.items()}
    public |= {"kind": "fedavg", "steps": defence.steps, "lr": LEARNING_RATE}
    return Update(weights, Facts(**public)), Secret(images, labels, plans)


def _draw(network: MJP, images: Tensor, defence: Defence, generator: torch.Generator) -> Plan:
    grid = network.grid(images)
    if defence.jigsaw == "none":
        return identity_plan(len(images), grid, device=images.device)
    return sample_plan(
        len(images), grid, defence.ratio, generator=generator, device=images.device, shared=defence.one_jigsaw
    )


def _gradients(
    network: MJP, images: Tensor, labels: Tensor, plan: Plan, defence: Defence, generator: torch.Generator
) -> dict[str, Tensor]:
    if defence.dp is not None:
        return _private_gradients(network, images, labels, plan, defence.dp, generator)
    out = network(images, plan)
    loss = cross_entropy(out.logits, labels) + network.config.localize_weight * out.dal
    named = {name: p for name, p in network.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(loss, list(named.values()), materialize_grads=True)
    return dict(zip(named, found, strict=True))


def _private_gradients(
    network: MJP, images: Tensor, labels: Tensor, plan: Plan, multiplier: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """One step of DP-SGD by Opacus's optimizer: clipped per picture, summed, noised, averaged."""
    try:
        from opacus.optimizers import DPOptimizer
    except ImportError as error:
        raise InputError("the defence dp needs Opacus: pip install 'mjp[dp]'") from error
    private = copy.deepcopy(network)
    named = {name: p for name, p in private.named_parameters() if p.requires_grad}
    optimizer = DPOptimizer(
        torch.optim.SGD(named.values(), lr=1.0),
        noise_multiplier=multiplier,
        max_grad_norm=CLIP,
        expected_batch_size=len(images),
        generator=generator,
    )
    for name, gradient in per_sample_gradients(private, images, labels, plan).items():
        named[name].grad_sample = gradient  # type: ignore[attr-defined]
    optimizer.pre_step()
    return {name: p.grad.detach() for name, p in named.items() if p.grad is not None}


def _train(
    network: MJP, images: Tensor, labels: Tensor, defence: Defence, generator: torch.Generator
) -> tuple[dict[str, Tensor], tuple[Plan, ...]]:
    """Weights after the local steps of plain SGD, and the jigsaw of each step."""
    own = copy.deepcopy(network)
    plans = tuple(_draw(own, images, defence, generator) for _ in range(defence.steps))
    for plan in plans:
        gradients = _gradients(own, images, labels, plan, defence, generator)
        if defence.positions == "frozen":
            gradients = _keep_home(gradients, defence)
        with torch.no_grad():
            for name, parameter in own.named_parameters():
                if name in gradients:
                    parameter.sub_(LEARNING_RATE * gradients[name])
    return {name: p.detach() for name, p in own.named_parameters() if p.requires_grad}, plans


def _keep_home(gradients: dict[str, Tensor], defence: Defence) -> dict[str, Tensor]:
    """Leave out what a defence freezes or withholds."""
    if defence.positions not in ("frozen", "withheld"):
        return gradients
    return {name: g for name, g in gradients.items() if not _about_positions(name)}


def _about_positions(name: str) -> bool:
    plain = plain_name(name)
    return plain in ("pos_embed", "unknown", "index") or plain.startswith("localizer.")


def as_mjp(model: nn.Module) -> MJP:
    """A bare timm model as the trivial MJP model (variant A)."""
    from mjp.method.config import variant

    return model if isinstance(model, MJP) else MJP(model, variant("A"))
