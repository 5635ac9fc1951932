"""Does a localization loss on relative biases help? Trains small ViTs with and without one, and prints what they reach:

    python tools/measure_localization.py --seeds 3

The loss is DAL's, for distances: a linear head reads (rows, columns) between two patches off their biases in all heads
and blocks. The library has no such loss; this file is how that was decided. Also measured: how well a linear fit reads
distances off the biases that training without the loss gave.
"""

import argparse
import json
import statistics
from typing import Any

import mjp  # before timm: it makes torchvision importable

# isort: split
import timm
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mjp.pictures.sets import embedded

SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 96, "depth": 4, "num_heads": 3}


def pictures(split: str) -> tuple[Tensor, Tensor]:
    """The embedded pictures, normalised, and their classes."""
    source: Any = embedded(split)
    pixels = torch.from_numpy(source.pixels).permute(0, 3, 1, 2).float() / 127.5 - 1
    return pixels, torch.tensor(source.labels)


def biases(network: Any) -> tuple[Tensor, Tensor]:
    """(49, blocks · heads) biases of all distances, and (49, 2) the distances, in a 4x4 grid."""
    tables = [block.attn.rel_pos.relative_position_bias_table for block in network.blocks]
    steps = torch.arange(-3.0, 4.0)
    return torch.cat(tables, 1), torch.cartesian_prod(steps, steps)


def train(seed: int, weight: float, epochs: int) -> dict[str, float]:
    """Top-1 on the held-out pictures and the error of a linear fit, after training with this weight of the loss."""
    torch.manual_seed(seed)
    network: Any = timm.create_model(
        "vit_relpos_small_patch16_224", rel_pos_type="bias", init_values=0.1, num_classes=10, **SMALL
    )
    head = torch.nn.Linear(12, 2)
    model = mjp.MJP(network, mjp.variant("G", ratio=0.27, seed=seed)).train()
    images, labels = pictures("train")
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=epochs * (len(images) // 100))
    for _ in range(epochs):
        for rows in torch.randperm(len(images))[: len(images) // 100 * 100].view(-1, 100):
            table, distances = biases(network)
            localization = (head(table) - distances).abs().sum(1).mean()
            loss = cross_entropy(model(images[rows]).logits, labels[rows]) + weight * localization
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return {"top1": accuracy(model), "linear_fit_error": linear_fit_error(network)}


@torch.no_grad()
def accuracy(model: mjp.MJP) -> float:
    images, labels = pictures("val")
    return 100 * float((model.eval()(images).argmax(1) == labels).float().mean())


@torch.no_grad()
def linear_fit_error(network: Any) -> float:
    """Mean |rows| + |columns| by which a linear fit from biases to distances is off; 3.43 for a constant."""
    table, distances = biases(network)
    inputs = torch.cat([table, torch.ones(len(table), 1)], 1)
    fit = inputs @ torch.linalg.lstsq(inputs, distances).solution
    return float((fit - distances).abs().sum(1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.01, 0.1])
    options = parser.parse_args()
    for weight in options.weights:
        runs = [train(seed, weight, options.epochs) for seed in range(options.seeds)]
        summary: dict[str, Any] = {"weight": weight}
        for name in runs[0]:
            values = [run[name] for run in runs]
            summary[name] = round(statistics.mean(values), 2)
            summary[f"{name}_sd"] = round(statistics.stdev(values), 2) if len(values) > 1 else None
        print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
