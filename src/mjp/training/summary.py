"""What a run is about to do, in a few lines, before it does it."""

from typing import Any

import torch

from mjp.method.drawing import smallest_ratio
from mjp.method.model import MJP
from mjp.training.build import peak_learning_rate
from mjp.training.config import TrainConfig
from mjp.training.pretrained import Loaded


def summary_lines(
    config: TrainConfig,
    model: MJP,
    *,
    loaded: Loaded | None,
    resumed: bool,
    frozen: list[str],
    pictures: tuple[int, int],  # for training, for validation
    step_size: int,
    steps_per_epoch: int,
) -> list[str]:
    classes = 0 if model.classes is None else len(model.classes)
    steps = config.epochs * steps_per_epoch
    weights = ["from the checkpoint" if resumed else "random"] if loaded is None else loaded.lines()
    entries = {
        "model": [f"{config.model} at {config.input_size} px, {_parameters(model, frozen)}"],
        "weights": weights,
        "data": [f"{pictures[0]:,} training pictures of {classes} classes, {pictures[1]:,} for validation"],
        "jigsaw": _jigsaw(config, model),
        "optimizer": [_optimizer(config, step_size)],
        "steps": [f"{steps:,} = {config.epochs} epochs × {steps_per_epoch:,}, {step_size:,} pictures each"],
    }
    return [
        f"{name if first else '':<11}{text}"
        for name, texts in entries.items()
        for first, text in zip([True, *[False] * len(texts)], texts, strict=False)
    ]


def _parameters(model: MJP, frozen: list[str]) -> str:
    counts = {name: parameter.numel() for name, parameter in model.named_parameters()}
    text = f"{sum(counts.values()):,} parameters"
    if frozen:
        text += f", {sum(counts[name] for name in frozen):,} of them frozen ({len(frozen)} tensors)"
    return text


def _jigsaw(config: TrainConfig, model: MJP) -> list[str]:
    method = model.config
    if method.shuffle == "none":
        return ["none"]
    grid, masked = masked_patches(model, config.input_size)
    count = "at most " if method.sampler == "reference" else ""
    text = f"{grid[0]}×{grid[1]} grid, {count}{masked} of {grid[0] * grid[1]} patches masked per picture"
    if method.probability < 1:
        text += f", in {100 * method.probability:g} % of the batches"
    if method.start_epoch:
        text += f", from epoch {method.start_epoch + 1}"
    if config.secret_key is not None:
        text += f", {'one for life' if config.sticky else 'drawn'} from the secret key {config.secret_key}"
    cells = grid[0] * grid[1]
    if masked > 1 or cells < 2:
        return [text]
    return [text, f"no patch ever moves: the smallest --mjp.ratio that moves patches here is {smallest_ratio(cells):g}"]


def masked_patches(model: MJP, size: int) -> tuple[tuple[int, int], int]:
    """The grid of an input of so many pixels, and how many of its cells training masks."""
    epoch, model.epoch = model.epoch, model.config.start_epoch
    parameter: Any = next(model.parameters())
    try:
        picture = torch.zeros(1, 3, size, size, device=parameter.device)
        plan = model.sample_plan(picture, torch.Generator(parameter.device).manual_seed(0))
    finally:
        model.epoch = epoch
    return plan.grid, plan.budget


def _optimizer(config: TrainConfig, step_size: int) -> str:
    rate = peak_learning_rate(config, step_size)
    text = f"{config.opt}, learning rate {rate:.3g} ({config.lr:g} × {step_size} / 512)"
    if config.layer_decay is not None:
        text += f", layer decay {config.layer_decay:g}"
    if config.head_lr != 1:
        text += f", new parameters × {config.head_lr:g}"
    return text
