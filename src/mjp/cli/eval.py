"""Accuracy, consistency and feature shift of one or several models under the jigsaw, and their robustness.

A model is a shipped name (mini-cifar10-plain, mini-cifar10-mjp), a folder (of save_pretrained or of a training run),
timm:NAME, or a hub repository OWNER/NAME.

Example: mjp eval mini-cifar10-plain mini-cifar10-mjp --data embedded

Accuracy alone: mjp eval out/my-run --data DIR --ratios

Weights from a file: mjp eval timm:deit_tiny_patch16_224 --weights deit.safetensors --data DIR

Robustness alone: mjp eval mini-cifar10-mjp --ratios --corrupt
"""

from mjp.common.results import Results
from mjp.evaluation.config import EvalConfig as Options


def run(options: Options) -> Results:
    from mjp.evaluation.evaluate import evaluate

    return evaluate(options)
