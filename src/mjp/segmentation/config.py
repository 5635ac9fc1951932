"""Everything that defines a segmentation run. No torch in here: the command line prints its help from this file."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import yaml

from mjp.common.errors import InputError
from mjp.common.runs.recipe import FREE_TO_CHANGE as RUN_FREE_TO_CHANGE
from mjp.common.runs.recipe import plain_value
from mjp.common.validate import check_options, fraction, number, whole

STRIDE = 32  # UPerNet takes pictures whose sides are multiples of this
DEFAULT_MODEL = "swin_tiny_patch4_window7_224"


@dataclass(kw_only=True)
class SegmentConfig:
    """A segmentation run. The defaults are the Swin recipe for ADE20K, as far as UPerNet here has its parts."""

    data: Path
    """Folder in CamVid's layout ({train,val,test}/{images,masks}) or ADE20K's ({images,annotations}/{training,
    validation})."""
    checkpoint: Path | None = None
    """Weights of the backbone: a file in timm names, a folder written by save_pretrained, or a run of mjp train."""
    model: str | None = None
    """timm name of the backbone (default: swin_tiny_patch4_window7_224); a folder as --checkpoint names its own."""
    model_kwargs: tuple[str, ...] = ()
    """Arguments of the timm model, as name=value, for weights from a file or random ones."""
    pretrained: bool = False
    """Start from the weights that timm has for the model (downloaded once). Otherwise, without --checkpoint: random."""
    out: Path = Path("out/segment")
    """Folder of the run: checkpoints, metrics.jsonl, results.json, predictions.png, curve.png, model.safetensors."""
    resume: Path | None = None
    """Checkpoint to continue from instead of the newest one in the folder."""
    split: Literal["val", "test"] | None = None
    """Pictures of the final figures; default: test, or val where there is no test."""

    decoder_channels: int = 256
    """Width of UPerNet's decoder."""
    drop_path: float = 0.2
    """Stochastic depth of the backbone, if it has any."""
    crop: int = 512
    """Side of the training crops in pixels, a multiple of 32."""
    short_side: int | None = None
    """Resize pictures so that their shorter side has so many pixels (ADE20K: 512); default: leave them as they are."""
    scale: tuple[float, float] = (0.5, 2.0)
    """Random resizing in training, relative to that size."""
    flip: float = 0.5
    """Probability of a horizontal flip in training."""

    epochs: int = 127
    """Passes over the training pictures; 127 on ADE20K are the recipe's 160,000 steps."""
    batch_size: int = 16
    """Crops per step, at least 2."""
    lr: float = 6e-5
    """Learning rate of AdamW after the warm-up; it falls linearly to 0."""
    warmup_epochs: float = 1.2
    """Epochs of linear warm-up."""
    weight_decay: float = 0.01
    """None on biases, norms and position tables."""
    clip_grad: float | None = 5.0
    """Largest norm of the gradient."""

    seed: int = 0
    """Seed of the decoder (and of a random backbone), order, augmentation and stochastic depth."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    amp: Literal["none", "bf16"] = "none"
    """Automatic mixed precision."""
    workers: int = 1
    """Data loading processes."""
    eval_every: int = 10
    """Epochs between evaluations on val."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints inside an epoch; every epoch ends with one."""
    log_every: int = 20
    """Optimizer steps between lines in metrics.jsonl."""
    stop_after: int | None = None
    """Stop after this many optimizer steps in total, with a checkpoint; the same command continues."""

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("epochs", "eval_every", "log_every", "decoder_channels"):
            whole(_flag(name), getattr(self, name), least=1)
        whole("--batch-size", self.batch_size, least=2)  # batch norm in the decoder needs two pictures
        for name in ("drop_path", "flip"):
            fraction(_flag(name), getattr(self, name))
        for name in ("lr", "warmup_epochs", "weight_decay"):
            number(_flag(name), getattr(self, name), least=0)
        if self.crop < STRIDE or self.crop % STRIDE:
            raise InputError(f"--crop must be a multiple of {STRIDE} pixels, not {self.crop}")
        if self.short_side is not None:
            whole("--short-side", self.short_side, least=STRIDE)
        if not 0 < self.scale[0] <= self.scale[1] <= 100:
            raise InputError(f"--scale must be two factors, the smaller one first and above 0, not {self.scale}")
        if self.checkpoint is not None and self.pretrained:
            raise InputError("--checkpoint and --pretrained both name weights: give one of them")

    @property
    def folder(self) -> Path:
        return self.out

    def to_yaml(self) -> str:
        return yaml.safe_dump({name: plain_value(value) for name, value in asdict(self).items()}, sort_keys=False)


# the figures are measured again whenever the command ends, so which pictures they are of may change as well
FREE_TO_CHANGE = RUN_FREE_TO_CHANGE | {"split"}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
