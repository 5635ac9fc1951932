"""The parts of a run, as timm makes them from the fields of a recipe."""

import ast
import math
from pathlib import Path
from typing import Any

import timm
import torch
from timm.data import Mixup
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from torch import nn

from mjp.common.errors import InputError
from mjp.method.backbones import fit_config
from mjp.method.config import PRESETS
from mjp.method.model import MJP
from mjp.training.config import TrainConfig
from mjp.training.groups import parameter_groups, position_names
from mjp.training.pretrained import Loaded, load_into_timm, load_into_wrapper, pretrained_weights


def build_model(config: TrainConfig, classes: int) -> MJP:
    """The timm model of a recipe with random weights, wrapped."""
    model = _wrap(config, _timm_model(config, classes))
    _start_positions(config, model, position_names(model))
    return model


def build_pretrained(config: TrainConfig, classes: int) -> tuple[MJP, Loaded | None]:
    """The model of a recipe with the weights it starts from, and what was loaded; None if it starts at random."""
    pretrained = pretrained_weights(model=config.model, pretrained=config.pretrained, checkpoint=config.checkpoint)
    if pretrained is None:
        return build_model(config, classes), None
    model = _timm_model(config, classes)
    report = load_into_timm(model, *pretrained)
    wrapped = _wrap(config, model)
    load_into_wrapper(wrapped, pretrained[1], report)
    _start_positions(config, wrapped, position_names(wrapped) & report.new)
    return wrapped, report


def _timm_model(config: TrainConfig, classes: int) -> nn.Module:
    if not timm.is_model(config.model):
        raise InputError(f"timm has no model {config.model!r}: timm.list_models() names them")
    kwargs = dict(model_argument(text) for text in config.model_kwargs)
    kwargs = {"num_classes": classes, "drop_path_rate": config.drop_path, "drop_rate": config.drop, **kwargs}
    try:
        try:
            return timm.create_model(config.model, img_size=config.input_size, **kwargs)
        except TypeError:  # convolutional networks take any size and know no img_size
            return timm.create_model(config.model, **kwargs)
    except (TypeError, RuntimeError, AssertionError, ValueError) as error:
        raise InputError(f"timm cannot create {config.model} with {kwargs}: {error}") from error


def _wrap(config: TrainConfig, model: nn.Module) -> MJP:
    # a preset means: as far as this model can carry it
    return MJP(model, fit_config(config.mjp, model) if config.preset in PRESETS else config.mjp)


def _start_positions(config: TrainConfig, model: MJP, new: set[str]) -> None:
    """With --reference-positions, draw new position embeddings from N(0, 1), as torch starts an nn.Embedding."""
    if not config.reference_positions:
        return
    if not position_names(model) or config.mjp.position == "none":
        raise InputError(
            f"--reference-positions is about absolute position embeddings, and {config.model} with --preset "
            f"{config.preset} has none: leave it out"
        )
    for name in sorted(new):
        nn.init.normal_(model.get_parameter(name), generator=model.generator)


def refuse_idle_jigsaw(config: TrainConfig) -> None:
    """Refuse a run that would end before its jigsaw starts."""
    start = config.mjp.start_epoch
    if config.mjp.shuffle != "none" and start >= config.epochs:
        raise InputError(
            f"the jigsaw of --preset {config.preset} starts after {start} epochs, and the run has {config.epochs}: "
            f"nothing would be shuffled. Give --mjp.start-epoch {config.epochs // 4}, or more --epochs"
        )


def refuse_missing_weights(config: TrainConfig) -> None:
    """Refuse to fine-tune nothing: without weights all parameters are new."""
    if config.head_lr != 1 and not (config.pretrained or config.checkpoint):
        raise InputError(
            f"a rate for new parameters (--head-lr {config.head_lr:g}) needs weights to start from: name them with "
            "--pretrained or --checkpoint FILE"
        )


def localize_weight(config: TrainConfig, epoch: float) -> float:
    """λ at a moment of training."""
    weight, warmup = config.mjp.localize_weight, config.warmup_epochs
    if config.localize_schedule == "constant":
        return weight
    if epoch < warmup:
        return weight * epoch / warmup
    turn = math.cos(math.pi * (epoch - warmup) / max(config.epochs - warmup, 1e-9))
    return weight / 2 + weight / 4 * (1 + turn)


def mask_ratio(config: TrainConfig, epoch: float) -> float:
    """γ at a moment of training."""
    progress = epoch / config.epochs
    shares = {"constant": 1.0, "rise": min(1.0, 2 * progress), "fall": min(1.0, 2 * (1 - progress))}
    return config.mjp.ratio * max(0.0, shares[config.ratio_schedule])


def save_model(config: TrainConfig, model: MJP, target: Path) -> None:
    """Save a trained model with the timm arguments that are read off it, or with those of the recipe."""
    try:
        model.save_pretrained(target)
    except InputError:  # some arguments leave no trace in a model, such as the channels of a ResNet
        arguments = dict(model_argument(text) for text in config.model_kwargs)
        model.save_pretrained(target, model_args={"num_classes": model.num_classes, **arguments})


def model_argument(text: str) -> tuple[str, Any]:
    """One argument of a timm model, written as name=value."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--model-kwargs takes name=value, not {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def peak_learning_rate(config: TrainConfig, step_size: int) -> float:
    """The learning rate after warm-up, for so many pictures per step."""
    return config.lr * step_size / 512


def build_optimizer(
    config: TrainConfig, model: MJP, step_size: int, new: set[str] | None = None
) -> torch.optim.Optimizer:
    """timm's optimizer. `new` parameters, which no pretrained weights had, learn at the rate of the head."""
    options: dict[str, Any] = {"eps": config.opt_eps, "betas": config.opt_betas, "momentum": config.momentum}
    options = {name: value for name, value in options.items() if value is not None}
    parameters: Any = model
    if config.layer_decay is not None or config.head_lr != 1 or config.reference_positions:
        parameters = parameter_groups(
            model,
            weight_decay=config.weight_decay,
            layer_decay=config.layer_decay,
            head_lr=config.head_lr,
            new=new or set(),
            decayed=position_names(model) if config.reference_positions else set(),
        )
    lr = peak_learning_rate(config, step_size)
    try:
        return create_optimizer_v2(parameters, config.opt, lr=lr, weight_decay=config.weight_decay, **options)
    except (AssertionError, TypeError, ValueError) as error:
        raise InputError(f"timm cannot create the optimizer {config.opt!r}: {error}") from error


def build_schedule(config: TrainConfig, optimizer: torch.optim.Optimizer, steps_per_epoch: int) -> Any:
    schedule, _ = create_scheduler_v2(
        optimizer,
        config.sched,
        num_epochs=config.epochs,
        min_lr=config.min_lr,
        warmup_lr=config.warmup_lr,
        warmup_epochs=config.warmup_epochs,  # type: ignore[arg-type]
        step_on_epochs=False,
        updates_per_epoch=steps_per_epoch,
    )
    if schedule is None:
        raise InputError(f"timm has no schedule {config.sched!r}: cosine, step, poly, tanh, ... are there")
    return schedule


def build_mixup(config: TrainConfig, classes: int) -> Mixup | None:
    if not (config.mixup or config.cutmix):
        return None
    return Mixup(
        mixup_alpha=config.mixup,
        cutmix_alpha=config.cutmix,
        prob=config.mixup_prob,
        switch_prob=config.mixup_switch_prob,
        mode=config.mixup_mode,
        label_smoothing=config.smoothing,
        num_classes=classes,
    )
