"""What training ALADIN end to end on COCO takes: an estimate from counted operations, not a measurement.

    python tools/estimate_coco.py

Operations of a picture's pass through the backbone are counted by torch on a model without weights (a product and a
sum are two operations). A trained picture takes one forward pass, a backward pass of twice that, and with --chunk one
more forward pass. The alignment of a step compares every patch of its pictures with every word of its captions.
Decoding, evaluation and waiting are not part of it.
"""

import mjp  # isort: skip  before timm

from typing import NamedTuple

import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

assert mjp
PICTURES = 113_287  # of Karpathy's training split
EPOCHS, BATCH, CHUNK = 20, 1024, 64  # pictures per step over all processes; per graph
CAPTIONS, WORDS, ALIGN_WIDTH = 2, 12, 128
PEAK, UTILISATION = 312e12, 0.35  # operations per second of one A100 in bf16, and the share that is reached
ADAM_BYTES = 16  # weight, gradient and two moments of a parameter, in full precision
ACTIVATION_BYTES = 34  # per token, width and block, in half precision with fused attention (Korthikanti et al., 2022)


class Tower(NamedTuple):
    title: str
    name: str  # of the same network in timm
    size: int


TOWERS = (
    Tower("open_clip ViT-B-32, 224 px", "vit_base_patch32_clip_224", 224),
    Tower("open_clip ViT-B-16, 224 px", "vit_base_patch16_clip_224", 224),
    Tower("open_clip ViT-L-14, 336 px", "vit_large_patch14_clip_336", 336),
    Tower("timm ViT-B/16, 384 px", "vit_base_patch16_384", 384),
)


def estimate(tower: Tower) -> str:
    with torch.device("meta"):
        model = timm.create_model(tower.name, num_classes=0).eval()
        with FlopCounterMode(display=False) as counter:
            tokens = model.forward_features(torch.zeros(1, 3, tower.size, tower.size))  # type: ignore[operator]
    forward = counter.get_total_flops()
    _, count, width = tokens.shape
    alignment = 3 * 2 * count * BATCH * CAPTIONS * WORDS * ALIGN_WIDTH
    total = PICTURES * EPOCHS * (4 * forward + alignment)
    hours = total / (PEAK * UTILISATION) / 3600
    parameters = sum(parameter.numel() for parameter in model.parameters())
    states = parameters * ADAM_BYTES / 1e9
    activations = ACTIVATION_BYTES * count * width * len(model.blocks) * CHUNK / 1e9  # type: ignore[arg-type]
    figures = f"{forward / 1e9:.1f} | {parameters / 1e6:.0f} | {total / 1e18:.2f} | {hours:.1f} | "
    return f"| {tower.title} | {figures}{states:.1f} + {activations:.1f} |"


def main() -> None:
    print("| backbone | GFLOP a picture | million parameters | 10^18 FLOP | GPU hours | GB: weights + activations |")
    print("|---|---|---|---|---|---|")
    for tower in TOWERS:
        print(estimate(tower))


if __name__ == "__main__":
    main()
