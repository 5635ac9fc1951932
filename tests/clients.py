"""A small client for tests of the privacy room: tiny ViTs, real pictures, an update, and what an attacker sees."""

import mjp  # isort: skip  before timm: it makes torchvision importable

from functools import cache
from typing import Any

import timm
import torch
from torch import Tensor

from mjp.method.model import MJP
from mjp.pictures.sets import embedded
from mjp.privacy.attacks import find_attack
from mjp.privacy.client.victim import Secret, make_update
from mjp.privacy.combination import parse
from mjp.privacy.network import as_mjp, shared_network
from mjp.privacy.server.prior import Prior, fit_prior
from mjp.privacy.server.view import Reconstruction, View
from mjp.privacy.update import Update

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# 16 patches of 8×8 pixels in 64 dimensions: 2N + 1 ≤ D − 1
TINY: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 8,
    "embed_dim": 64,
    "depth": 2,
    "num_heads": 2,
    "num_classes": 10,
}


def tiny(name: str = "deit_tiny_patch16_224", *, dtype: torch.dtype = torch.float64, **changes: Any) -> MJP:
    """A small ViT as timm starts it; the biases, which timm starts at zero, are drawn too."""
    with torch.random.fork_rng(devices=[]):  # timm draws weights from torch's global generator
        torch.manual_seed(0)
        model: Any = timm.create_model(name, **{**TINY, **changes}).to(dtype)
        model.patch_embed.proj.bias.data.normal_(std=0.1)
    return as_mjp(model.eval())


@cache
def _pixels(split: str) -> Tensor:
    return torch.from_numpy(embedded(split).pixels.copy()).permute(0, 3, 1, 2).double() / 255


def pictures(count: int = 1, *, start: int = 3) -> Tensor:
    """(B, 3, 32, 32) in [0, 1], pictures of CIFAR-10."""
    return _pixels("val")[start : start + count]


@cache
def prior() -> Prior:
    return fit_prior(_pixels("train")[::25])


choose_pictures = pictures  # for where an argument has this name


def normalise(images: Tensor) -> Tensor:
    return (images - images.new_tensor(MEAN).view(-1, 1, 1)) / images.new_tensor(STD).view(-1, 1, 1)


def send(
    model: MJP,
    defence: str = "none",
    *,
    labels: list[int] | None = None,
    seed: int = 1,
    start: int = 3,
    pictures: Tensor | None = None,
    **options: Any,
) -> tuple[MJP, Update, Secret]:
    """The shared network, the update of a client with pictures of CIFAR-10, and the client's secret."""
    combination = parse(defence)
    network = shared_network(model, combination)
    sent = choose_pictures(combination.batch, start=start) if pictures is None else pictures
    images = normalise(sent).to(next(network.parameters()))
    classes = torch.tensor([4] * combination.batch if labels is None else labels)
    generator = torch.Generator().manual_seed(seed)
    options = {"mean": MEAN, "std": STD, **options}
    update, secret = make_update(network, images, classes, combination, generator=generator, **options)
    return network, update, secret


def attack(name: str, network: MJP, update: Update) -> Reconstruction:
    return find_attack(name).run(View(update, network, prior()))


__all__ = ["attack", "mjp", "normalise", "pictures", "prior", "send", "tiny"]
