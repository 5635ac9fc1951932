"""How exact and how fast the attacks are, on one picture.

april_token_error    relative error of the tokens that APRIL recovers from a ViT-B's float64 gradients
april_gelsd_ratio    seconds of the same solve by LAPACK's gelsd over seconds by gelsy, which APRIL uses here
direct_seconds       the direct attack on a DeiT-S, float32, from update to picture
direct_processor     the same in seconds of the processor, of all threads: what others take does not count
direct_vs_gelsd      direct_seconds over the seconds of LAPACK's gelsd for the same linear system, which has no prior
attack_seconds       {attack: seconds} on the shipped 32 px model under mjp:0.27, from update to picture
lattice_seconds      {open dimensions: seconds} of lattice on the same model for larger and larger ratios
"""

import statistics
import time
from typing import Any

import torch

from mjp.bench.timing import medians, processor_seconds, seconds
from mjp.common.progress import track
from mjp.models import find_model
from mjp.pictures.landscape import landscape
from mjp.pictures.tensors import normalise
from mjp.privacy.attacks import Attack, april, direct, find_attack
from mjp.privacy.client.victim import make_update
from mjp.privacy.combination import parse
from mjp.privacy.metrics import psnr
from mjp.privacy.network import shared_network
from mjp.privacy.server.first_block import WEIGHT
from mjp.privacy.server.integers import can_reduce
from mjp.privacy.server.public_pictures import find_prior
from mjp.privacy.server.view import View

REPEATS = 5
LARGE = "timm:vit_base_patch16_224"
WIDE = "timm:deit_small_patch16_224"
SMALL = "mini-cifar10-mjp"
ATTACKS = ("direct", "span", "subspace", "jigsaw", "activations", "lattice", "rounds")
LONG = 2.0  # seconds
RATIOS = (0.06, 0.09, 0.15, 0.27, 0.5)  # of lattice


def measure(repeats: int, _: int) -> dict[str, Any]:
    return {**_april(repeats), **_direct(repeats), **_attacks(repeats), **_lattice()}


def lines(figures: dict[str, Any]) -> list[str]:
    april = f"tokens to {figures['april_token_error']:.1e}, gelsd takes {figures['april_gelsd_ratio']:.1f} × as long"
    direct = f"{figures['direct_seconds']:.2f} s ({figures['direct_processor']:.2f} s of the processor)"
    direct += f", {figures['direct_psnr']:.0f} dB"
    attacks = ", ".join(f"{name} {value:.2f} s" for name, value in figures["attack_seconds"].items())
    lattice = ", ".join(f"{q} open: {value:.1f} s" for q, value in figures["lattice_seconds"].items())
    return [
        f"APRIL, ViT-B, float64    {april} as gelsy",
        f"direct, DeiT-S, float32  {direct}, {figures['direct_vs_gelsd']:.1f} × LAPACK's gelsd",
        f"{SMALL}, mjp:0.27  {attacks}",
        f"lattice, {SMALL}  " + (lattice or "not installed: pip install 'mjp[lattice]'"),
    ]


def _view(name: str, dtype: torch.dtype = torch.float32, *, defence: str = "none", attack: Any = None) -> View:
    """What a server sees of one picture."""
    subject = find_model(name, random_weights=0)
    combination = parse(defence)
    network = shared_network(subject.model.to(dtype), combination)
    network = attack.network(network) if hasattr(attack, "network") else network
    image = normalise(_picture(subject.size).to(dtype), subject.mean, subject.std)
    normalisation: dict[str, Any] = {"mean": subject.mean, "std": subject.std}
    generator = torch.Generator().manual_seed(0)
    update, _ = make_update(network, image, torch.tensor([0]), combination, generator=generator, **normalisation)
    return View(update, network, find_prior(None, subject.size))


def _picture(size: tuple[int, int]) -> torch.Tensor:
    """(1, 3, H, W), of whole grey levels."""
    return landscape(size[0]).mul(255).round() / 255


def _april(repeats: int) -> dict[str, Any]:
    view = _view(LARGE, torch.float64, attack=april)
    image = normalise(_picture(view.info.size).double(), view.info.mean, view.info.std)
    with torch.no_grad():
        true = view.vit._pos_embed(view.vit.patch_embed(image))[0]
    mixing, mixed = april.equations(view)
    tokens = april.solve(mixing, mixed)
    values = {"gelsy": list[float](), "gelsd": list[float]()}
    for _ in track(range(repeats), "APRIL"):
        for driver, times in values.items():
            began = time.perf_counter()
            april.solve(mixing, mixed, driver)
            times.append(time.perf_counter() - began)
    gelsy, gelsd = (statistics.median(times) for times in values.values())
    return {
        "april_token_error": float((tokens - true).norm() / true.norm()),
        "april_gelsd_ratio": round(gelsd / gelsy, 2),
        "april_solve_seconds": round(gelsy, 3),
    }


def _direct(repeats: int) -> dict[str, Any]:
    view = _view(WIDE)
    rebuilt = direct.run(view).pictures[0]
    times = medians(
        repeats,
        "direct",
        ours=lambda: direct.run(view),
        gelsd=lambda: torch.linalg.lstsq(view.positions.T, view.projection, driver="gelsd"),
    )
    processor = [processor_seconds(lambda: direct.run(view)) for _ in range(repeats)]
    return {
        "direct_seconds": round(times["ours"] / 1e3, 3),
        "direct_processor": round(statistics.median(processor), 3),
        "direct_vs_gelsd": round(times["ours"] / times["gelsd"], 2),
        "direct_psnr": round(psnr(_picture(view.info.size)[0].double(), rebuilt).item(), 1),
        "attack_repeats": repeats,
    }


def _attacks(repeats: int) -> dict[str, Any]:
    """Every attack that can run on the update of the small model; rounds has a second one."""
    view = _view(SMALL, defence="mjp:0.27")
    view.others = (_view(SMALL, defence="mjp:0.27"),)
    names = [name for name in ATTACKS if name != "lattice" or can_reduce()]
    return {"attack_seconds": {name: _typical(find_attack(name), view, repeats) for name in track(names, "attacks")}}


def _typical(attack: Attack, view: View, repeats: int) -> float:
    """The median of the repeats; once is enough for what takes long."""
    times = [seconds(lambda: attack.run(view))]
    if times[0] < LONG:
        times += [seconds(lambda: attack.run(view)) for _ in range(repeats - 1)]
    return round(statistics.median(times), 3)


def _lattice() -> dict[str, Any]:
    """Once for each ratio; without the gradient of the first MLP, which would leave nothing open."""
    if not can_reduce():
        return {"lattice_seconds": {}}
    attack = find_attack("lattice")
    figures = {}
    for ratio in track(RATIOS, "lattice"):
        view = _view(SMALL, defence=f"mjp:{ratio}")
        view.gradients.pop(WEIGHT)
        figures[str(int(view.mask.sum()) - 1)] = _typical(attack, view, 1)
    return {"lattice_seconds": figures}
