"""Everything that defines a training run, under the names DeiT users know. A recipe is a YAML file of these fields.

No torch in here: the command line reads this file to print its help.
"""

import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
import yaml

from mjp.common.errors import InputError
from mjp.common.runs.recipe import FREE_TO_CHANGE as RUN_FREE_TO_CHANGE
from mjp.common.runs.recipe import load_recipe, plain_value, value_of
from mjp.method.config import PRESETS, VARIANTS, MJPConfig, preset, variant


@dataclass(kw_only=True)
class TrainConfig:
    """A training run. Fields not given on the command line come from the recipe."""

    recipe: str = "quickstart"
    """Recipe to start from: quickstart, mini_cifar10, deit_small_imagenet, swin_tiny_imagenet, resnet50_imagenet, or a
    YAML file."""
    preset: Annotated[str, tyro.conf.arg(aliases=["--variant"])] = "paper"
    """plain, a row A–J of the ablation table, paper, reference or private."""
    data: str = "embedded"
    """embedded (comes with the package), cifar10, cifar100, or a folder with train/CLASS/* and val/CLASS/*."""
    data_dir: Path = Path("~/.cache/mjp/data")
    """Where named data sets are kept or downloaded to."""
    out: Path | None = None
    """Folder of the run; by default out/RECIPE-PRESET. A run found there is continued."""
    resume: Path | None = None
    """Checkpoint to continue from instead of the newest one in the folder."""

    model: str = "deit_tiny_patch16_224"
    """timm model."""
    model_kwargs: tuple[str, ...] = ()
    """Arguments of the timm model, as name=value."""
    input_size: int = 224
    """Side of the input in pixels."""
    drop_path: float = 0.1
    """Stochastic depth."""
    drop: float = 0.0
    """Dropout."""
    model_ema: bool = False
    """Keep an exponential moving average of the weights; it is what is evaluated and saved in the end."""
    model_ema_decay: float = 0.99996
    """Decay of that average per step."""

    epochs: int = 300
    """Passes over the data."""
    batch_size: int = 128
    """Pictures per process and forward pass."""
    accumulate: int = 1
    """Forward passes per optimizer step."""
    opt: str = "adamw"
    """timm optimizer."""
    opt_eps: float | None = 1e-8
    """Optimizer epsilon."""
    opt_betas: tuple[float, float] | None = (0.9, 0.999)
    """Optimizer betas."""
    momentum: float = 0.9
    """Momentum of SGD."""
    lr: float = 5e-4
    """Learning rate per 512 pictures: it is multiplied by (pictures per step) / 512."""
    weight_decay: float = 0.05
    """None on biases, norms, position embeddings and class token."""
    sched: str = "cosine"
    """timm schedule."""
    warmup_epochs: float = 20
    """Epochs of linear warm-up."""
    warmup_lr: float = 1e-6
    """Learning rate at the start of the warm-up."""
    min_lr: float = 1e-5
    """Learning rate at the end."""
    clip_grad: float | None = 5.0
    """Largest norm of the gradient."""
    localize_schedule: Literal["constant", "reference"] = "constant"
    """λ over time: constant, or the authors' (linear warm-up with the learning rate, then cosine to λ/2)."""

    smoothing: float = 0.1
    """Label smoothing."""
    aa: str | None = "rand-m9-mstd0.5-inc1"
    """timm auto-augment policy."""
    color_jitter: float = 0.4
    """Colour jitter (timm leaves it out beside RandAugment)."""
    hflip: float = 0.5
    """Probability of a horizontal flip."""
    scale: tuple[float, float] = (0.08, 1.0)
    """Area of random resized crops. Inputs of 32 pixels or less get a random crop with 4 pixels of padding instead."""
    train_interpolation: str = "bicubic"
    """Interpolation of crops."""
    crop_pct: float = 0.875
    """Share of the resized picture that the evaluation crop takes (224 of 256)."""
    reprob: float = 0.25
    """Probability of random erasing."""
    remode: str = "pixel"
    """What random erasing fills in."""
    recount: int = 1
    """Erased regions."""
    repeated_aug: int = 3
    """How often each picture appears in a batch, each time augmented anew; 1 = once."""
    mixup: float = 0.8
    """Mixup alpha; 0 = off."""
    cutmix: float = 1.0
    """CutMix alpha; 0 = off."""
    mixup_prob: float = 1.0
    """Probability of mixup or CutMix per batch."""
    mixup_switch_prob: float = 0.5
    """Probability of CutMix when both are on."""
    mixup_mode: Literal["batch", "pair", "elem"] = "batch"
    """Whether mixing is drawn per batch, pair or picture."""
    max_unreadable: int = 0
    """How many unreadable pictures to put up with. Each is named; in validation it counts as a wrong answer."""

    seed: int = 0
    """Seed of weights, order, augmentation, mixing, stochastic depth and plans."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    amp: Literal["none", "bf16", "fp16"] = "none"
    """Automatic mixed precision."""
    channels_last: bool = False
    """Memory format of the images, for convolutional networks on a GPU."""
    compile: bool = False
    """torch.compile the model (about a minute at the start)."""
    workers: int = 1
    """Data loading processes."""
    eval_every: int = 1
    """Epochs between evaluations (the last epoch is always evaluated)."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints inside an epoch; every epoch ends with one."""
    log_every: int = 20
    """Optimizer steps between lines in metrics.jsonl."""
    stop_after: int | None = None
    """Stop after this many optimizer steps in total, with a checkpoint; --resume goes on."""
    tensorboard: bool = False
    """Also write TensorBoard files (needs `pip install mjp[tensorboard]`)."""

    mjp: MJPConfig = field(default_factory=MJPConfig)
    """The method's own fields; the preset sets them, --mjp.NAME changes one."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate", "eval_every", "log_every", "repeated_aug", "input_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{_flag(name)} must be at least 1, not {getattr(self, name)}")
        for name in ("drop_path", "drop", "smoothing", "hflip", "reprob", "mixup_prob", "mixup_switch_prob"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{_flag(name)} must lie between 0 and 1, not {getattr(self, name)}")
        for name in ("lr", "weight_decay", "warmup_epochs", "warmup_lr", "min_lr", "mixup", "cutmix", "max_unreadable"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{_flag(name)} must be finite and not negative, not {getattr(self, name)}")
        if (self.mixup or self.cutmix) and self.batch_size % 2:
            raise InputError(f"--batch-size must be even for mixup and CutMix, not {self.batch_size}")

    @property
    def folder(self) -> Path:
        return self.out or Path("out") / f"{Path(self.recipe).stem}-{self.preset}"

    def to_yaml(self) -> str:
        values = asdict(self) | {"mjp": self.mjp.to_dict()}
        return yaml.safe_dump({name: plain_value(value) for name, value in values.items()}, sort_keys=False)


FREE_TO_CHANGE = RUN_FREE_TO_CHANGE | {"data_dir", "compile", "tensorboard"}


def named_config(name: str) -> MJPConfig:
    """plain, A–J, paper, reference or private."""
    if name == "plain":
        return variant("A")
    if name in VARIANTS:
        return variant(name)
    if name in PRESETS:
        return preset(name)
    raise InputError(f"unknown preset {name!r}: choose one of plain, {', '.join([*VARIANTS, *PRESETS])}")


def config_from(values: dict[str, Any]) -> TrainConfig:
    """A configuration from plain values as YAML has them."""
    known = {f.name for f in fields(TrainConfig)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InputError(f"unknown field {', '.join(unknown)}: mjp train --help lists all")
    values = dict(values)
    named = named_config(values.get("preset", "paper"))
    values["mjp"] = MJPConfig.from_dict({**named.to_dict(), **values.get("mjp", {})})
    for name in ("data_dir", "out", "resume"):
        if values.get(name) is not None:
            values[name] = Path(values[name])
    for name in ("model_kwargs", "opt_betas", "scale"):
        if values.get(name) is not None:
            values[name] = tuple(values[name])
    try:
        return TrainConfig(**values)
    except TypeError as error:
        raise InputError(f"a field has a value of the wrong kind: {error}") from error


def parse_arguments(arguments: list[str], description: str) -> TrainConfig:
    """Recipe, then preset, then every option given."""
    recipe = value_of(arguments, "--recipe") or "quickstart"
    values = load_recipe(recipe) | {"recipe": recipe}
    chosen = value_of(arguments, "--preset", "--variant")
    if chosen is not None and chosen != values.get("preset", "paper"):
        values = {**values, "preset": chosen, "mjp": _changes(values, chosen)}
    return tyro.cli(TrainConfig, prog="mjp train", args=arguments, description=description, default=config_from(values))


def _changes(values: dict[str, Any], chosen: str) -> dict[str, Any]:
    """What a recipe changes about its own preset, as far as the preset chosen instead has no say in it."""
    before = config_from(values).mjp.to_dict()
    own, new = (named_config(name).to_dict() for name in (values.get("preset", "paper"), chosen))
    usual = MJPConfig().to_dict()
    return {name: value for name, value in before.items() if value != own[name] and new[name] == usual[name]}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
