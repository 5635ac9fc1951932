"""Train a model from a recipe. With no arguments: a small ViT with MJP on the embedded pictures, in under 3 minutes.

Without MJP: mjp train --preset plain

From pretrained weights: mjp train --recipe finetune --pretrained --data DIR

All of CIFAR-10 on two cores: mjp train --recipe mini_cifar10

On many GPUs: torchrun --nproc-per-node 8 -m mjp train --recipe deit_small_imagenet --data IMAGENET

Interrupted runs resume bit-exactly: rerun the same command.
"""

import os

from mjp.common.results import Results
from mjp.training.arguments import parse_arguments
from mjp.training.config import TrainConfig


def parse(arguments: list[str], description: str) -> TrainConfig:
    return parse_arguments(arguments, description=description)


def run(config: TrainConfig) -> Results | None:
    from mjp.common.read import read_jsonl
    from mjp.common.results import make_results
    from mjp.training.engine import train

    folder = train(config)
    if os.environ.get("RANK", "0") != "0":  # of the processes of torchrun, one speaks
        return None
    print(f"\nresult  {folder}")
    entries = read_jsonl(config.folder / "metrics.jsonl")
    return make_results("train", config, {"model": folder, "epochs": [e for e in entries if e["kind"] == "epoch"]})
