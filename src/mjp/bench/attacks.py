"""How exact and how fast the closed-form attacks are, on randomly initialised models of full size and one picture.

april_token_error    relative error of the tokens that APRIL recovers from a ViT-B's float64 gradients
april_gelsd_ratio    seconds of the same solve by LAPACK's gelsd over seconds by gelsy, which APRIL uses here
direct_seconds       the direct attack on a DeiT-S, float32, from update to picture
"""

import statistics
import time
from typing import Any

import torch

from mjp.common.progress import track
from mjp.models import find_model
from mjp.pictures.landscape import landscape
from mjp.pictures.tensors import normalise
from mjp.privacy.attacks import april, direct
from mjp.privacy.client.victim import make_update
from mjp.privacy.combination import parse
from mjp.privacy.metrics import psnr
from mjp.privacy.network import shared_network
from mjp.privacy.server.public_pictures import find_prior
from mjp.privacy.server.view import View

SIZE = 224


REPEATS = 5


def measure(repeats: int, _: int) -> dict[str, Any]:
    return {**_april(repeats), **_direct(repeats)}


def lines(figures: dict[str, Any]) -> list[str]:
    april = f"tokens to {figures['april_token_error']:.1e}, gelsd takes {figures['april_gelsd_ratio']:.1f} × as long"
    return [
        f"APRIL, ViT-B, float64    {april} as gelsy",
        f"direct, DeiT-S, float32  {figures['direct_seconds']:.1f} s, {figures['direct_psnr']:.0f} dB",
    ]


def _view(name: str, dtype: torch.dtype, attack: Any) -> tuple[View, torch.Tensor]:
    """What a server sees of one picture, and the picture as the network got it."""
    subject = find_model(f"timm:{name}", random_weights=0)
    network = shared_network(subject.model.to(dtype), parse("none"))
    network = attack.network(network) if hasattr(attack, "network") else network
    image = normalise(landscape(SIZE).to(dtype), subject.mean, subject.std)
    normalisation: dict[str, Any] = {"mean": subject.mean, "std": subject.std}
    generator = torch.Generator().manual_seed(0)
    label = torch.tensor([0])
    update, _ = make_update(network, image, label, parse("none"), generator=generator, **normalisation)
    return View(update, network, find_prior(None, (SIZE, SIZE))), image


def _april(repeats: int) -> dict[str, Any]:
    view, image = _view("vit_base_patch16_224", torch.float64, april)
    with torch.no_grad():
        true = view.vit._pos_embed(view.vit.patch_embed(image))[0]
    mixing, mixed = april.equations(view)
    tokens = april.solve(mixing, mixed)
    seconds = {"gelsy": list[float](), "gelsd": list[float]()}
    for _ in track(range(repeats), "APRIL"):
        for driver, values in seconds.items():
            began = time.perf_counter()
            april.solve(mixing, mixed, driver)
            values.append(time.perf_counter() - began)
    gelsy, gelsd = (statistics.median(values) for values in seconds.values())
    return {
        "april_token_error": float((tokens - true).norm() / true.norm()),
        "april_gelsd_ratio": round(gelsd / gelsy, 2),
        "april_solve_seconds": round(gelsy, 3),
    }


def _direct(repeats: int) -> dict[str, Any]:
    view, _ = _view("deit_small_patch16_224", torch.float32, direct)
    seconds = []
    for _ in track(range(repeats), "direct"):
        began = time.perf_counter()
        reconstruction = direct.run(view)
        seconds.append(time.perf_counter() - began)
    return {
        "direct_seconds": round(statistics.median(seconds), 2),
        "direct_psnr": round(psnr(landscape(SIZE)[0].double(), reconstruction.pictures[0]).item(), 1),
        "attack_repeats": repeats,
    }
