"""Everything that defines a training run, under the names DeiT users know. A recipe is a YAML file of these fields.

No torch in here: the command line reads this file to print its help.
"""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro
import yaml

from mjp.common.errors import InputError
from mjp.common.key_path import default_path
from mjp.common.runs.recipe import FREE_TO_CHANGE as RUN_FREE_TO_CHANGE
from mjp.common.runs.recipe import plain_value
from mjp.common.validate import number, whole
from mjp.method.config import MJPConfig

LEAST_WHOLE = {
    **dict.fromkeys(("epochs", "batch_size", "accumulate", "eval_every", "log_every", "repeated_aug", "input_size"), 1),
    **dict.fromkeys(("recount", "limit", "val_limit", "stop_after"), 1),
    **dict.fromkeys(("workers", "max_unreadable", "seed"), 0),
}
BOUNDS = {
    **dict.fromkeys(
        ("drop_path", "drop", "smoothing", "hflip", "reprob", "mixup_prob", "mixup_switch_prob"), (0.0, 1.0)
    ),
    **dict.fromkeys(("momentum", "model_ema_decay"), (0.0, 1.0)),
    **dict.fromkeys(("crop_pct", "layer_decay"), (1e-3, 1.0)),
    **dict.fromkeys(("lr", "weight_decay", "warmup_epochs", "warmup_lr", "min_lr", "mixup", "cutmix"), (0.0, math.inf)),
    **dict.fromkeys(("color_jitter", "checkpoint_minutes"), (0.0, math.inf)),
    **dict.fromkeys(("clip_grad", "head_lr"), (1e-9, math.inf)),
    "opt_eps": (0.0, math.inf),
}


@dataclass(kw_only=True)
class TrainConfig:
    """A training run. Fields not given on the command line come from the recipe."""

    recipe: str = "quickstart"
    """Recipe to start from: quickstart, finetune, mini_cifar10, deit_small_imagenet, swin_tiny_imagenet,
    resnet50_imagenet, or a YAML file."""
    preset: Annotated[str, tyro.conf.arg(aliases=["--variant"])] = "paper"
    """plain, a row A–J of the ablation table, paper (the localization loss sums row and column: twice its weight in the
    authors' code), reference (as the authors' code: jigsaw from epoch 20, their scale and schedule of λ) or
    paper-privacy (γ = .27 in every step, jigsaws from a secret key)."""
    data: str = "embedded"
    """embedded (comes with the package), cifar10, cifar100, or a folder with train/CLASS/* and val/CLASS/*."""
    data_dir: Path = Path("~/.cache/mjp/data")
    """Where named data sets are kept or downloaded to."""
    out: Path | None = None
    """Folder of the run; by default out/RECIPE-PRESET. An interrupted run in it is resumed."""
    resume: Path | None = None
    """Checkpoint to continue from instead of the newest one in the folder."""

    limit: int | None = None
    """Train on this many pictures only, spread evenly over the classes."""
    val_limit: int | None = None
    """Evaluate on this many pictures only, spread evenly over the classes."""

    model: str = "deit_tiny_patch16_224"
    """timm model. Another one than the recipe's starts without its --model-kwargs and with an input size of its own."""
    model_kwargs: tuple[str, ...] = ()
    """Arguments of the timm model, as name=value."""
    input_size: int = 224
    """Side of the input in pixels."""
    pretrained: bool = False
    """Start from the weights that timm has for the model (downloaded once)."""
    checkpoint: Path | None = None
    """Start from the weights in a file (safetensors; weights-only .pt or .pth), a saved model, or another run."""
    freeze: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Parameters that stay as they are: a glob on timm's names such as 'blocks.0.*', or a regular expression after re:.
    May be repeated."""
    layer_decay: float | None = None
    """Factor of the learning rate from each layer to the one below it; the new parameters are at the full rate."""
    head_lr: float = 1.0
    """Factor of the learning rate for parameters that the pretrained weights do not have: a new head, E_unk, the
    localization head."""
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
    """None on biases, norms, class token and (without --reference-positions) position embeddings."""
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
    """λ over time: constant, or reference (the authors': linear warm-up with the learning rate, then a cosine to λ/2),
    which comes with --preset reference."""
    reference_positions: bool = False
    """Treat the position table and E_unk as the authors' code does where there is an E_unk: new ones start at σ = 1
    (timm: .02), and both have weight decay. For seeing what that alone does."""
    ratio_schedule: Literal["constant", "rise", "fall"] = "constant"
    """Mask ratio γ over time: constant, rise (from 0 to γ in the first half of training) or fall (from γ to 0 in the
    second half)."""

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
    """Seed of weights, order, augmentation, mixing, stochastic depth and (without --secret-key) plans."""
    secret_key: Path | None = None
    """File with the key from which jigsaws are drawn, for training whose updates leave: made on first use, for your
    eyes only, outside of the run's folder. Default with --preset paper-privacy, --sticky or --dither:
    ~/.config/mjp/client.key."""
    sticky: bool = False
    """Every picture keeps one jigsaw for the life of the secret key, instead of a new one in every step."""
    dither: bool = False
    """Add uniform noise of one grey level to the training pictures, drawn from the secret key and the picture."""
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
    """Stop after this many optimizer steps in total, with a checkpoint; the same command without it continues."""
    tensorboard: bool = False
    """Also write TensorBoard files (needs `pip install mjp[tensorboard]`)."""

    mjp: MJPConfig = field(default_factory=MJPConfig)
    """The method's own fields; the preset sets them, --mjp.NAME changes one."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and name in LEAST_WHOLE:
                whole(_flag(name), value, least=LEAST_WHOLE[name])
            if value is not None and name in BOUNDS:
                number(_flag(name), value, least=BOUNDS[name][0], most=BOUNDS[name][1])
        for name, most in {"opt_betas": 1.0, "scale": math.inf}.items():
            for value in getattr(self, name) or ():
                number(_flag(name), value, least=0, most=most)
        if not 0 < self.scale[0] <= self.scale[1]:
            raise InputError(f"--scale must be (smallest, largest) with 0 < smallest <= largest, not {self.scale}")
        if self.seed >= 2**63:
            raise InputError(f"--seed must be below 2**63, not {self.seed}")
        if self.out is not None and self.out == Path():
            raise InputError("--out is empty: name a folder, or leave it out")
        if (self.mixup or self.cutmix) and self.batch_size % 2:
            raise InputError(f"--batch-size must be even for mixup and CutMix, not {self.batch_size}")
        self._check_pretraining()
        self._check_secrets()

    def _check_secrets(self) -> None:
        if (self.sticky or self.dither) and self.secret_key is None:
            self.secret_key = default_path()  # both draw from it
        if self.sticky and not (self.mjp.always_shuffles and self.ratio_schedule == "constant"):
            raise InputError(
                "--sticky needs a jigsaw of its own for every picture in every step: choose --preset paper-privacy, "
                "with --mjp.probability 1, --mjp.start-epoch 0 and without --mjp.shared and --ratio-schedule"
            )

    def _check_pretraining(self) -> None:
        if self.pretrained and self.checkpoint is not None:
            raise InputError("--pretrained and --checkpoint both name weights to start from: choose one")

    @property
    def folder(self) -> Path:
        return self.out or Path("out") / f"{Path(self.recipe).stem}-{self.preset}"

    def to_yaml(self) -> str:
        values = asdict(self) | {"mjp": self.mjp.to_dict()}
        return yaml.safe_dump({name: plain_value(value) for name, value in values.items()}, sort_keys=False)


FREE_TO_CHANGE = RUN_FREE_TO_CHANGE | {"data_dir", "compile", "tensorboard", "secret_key"}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
