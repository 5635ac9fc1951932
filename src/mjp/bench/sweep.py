"""What a sweep over γ costs, in plain passes over the same pictures: at most 1.1 × (number of jigsaws + 1).

The model of the mini_cifar10 recipe, a batch in memory; sweep and plain pass take turns, and the medians are compared.
"""

import statistics
from typing import Any

import timm
import torch

from mjp.bench.timing import seconds
from mjp.common.progress import track
from mjp.evaluation.batches import Batch
from mjp.evaluation.sweep import sweep
from mjp.method.config import variant
from mjp.method.model import MJP

RATIOS = (0.03, 0.09, 0.27, 0.5, 0.9)
PICTURES = 128  # in a batch
REPEATS = 5


def measure(repeats: int, _: int) -> dict[str, Any]:
    """sweep_cost_ratio: seconds of the sweep over seconds of (forward passes + 1) plain passes."""
    small: dict[str, Any] = {
        "img_size": 32,
        "patch_size": 4,
        "embed_dim": 96,
        "depth": 6,
        "num_heads": 3,
        "num_classes": 10,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MJP(timm.create_model("deit_tiny_patch16_224", **small), variant("E")).eval()
    images = torch.randn(PICTURES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(PICTURES) % 10
    data = [Batch(images, labels, list(range(start, start + PICTURES))) for start in (0, PICTURES)]

    def sweeping() -> None:
        sweep(model, data, RATIOS, draws=1, seed=0, device=torch.device("cpu"))

    @torch.no_grad()
    def plain() -> None:
        for pictures, labels, _ in data:
            (model(pictures).argmax(1) == labels).float().mean().item()

    times = {"sweep": list[float](), "plain": list[float]()}
    for _ in track(range(repeats + 1), "sweeps"):
        times["sweep"].append(seconds(sweeping))
        times["plain"] += [seconds(plain) for _ in range(len(RATIOS) + 1)]
    swept, passed = (statistics.median(values[1:]) for values in times.values())  # the first warms up
    return {
        "sweep_cost_ratio": round(swept / ((len(RATIOS) + 1) * passed), 3),
        "sweep_ms": round(1e3 * swept, 1),
        "plain_pass_ms": round(1e3 * passed, 1),
        "sweep_ratios": len(RATIOS),
        "sweep_repeats": repeats,
    }


def lines(figures: dict[str, Any]) -> list[str]:
    ratios, cost = figures["sweep_ratios"], figures["sweep_cost_ratio"]
    return [f"sweep over {ratios} ratios   {cost:.2f} × {ratios + 1} plain passes"]
