"""What defines a training run of ALADIN. No torch in here: the command line prints its help from this file."""

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import tyro
import yaml

from mjp.aladin.model.config import AladinConfig
from mjp.common.errors import InputError
from mjp.common.runs.recipe import FREE_TO_CHANGE as RUN_FREE_TO_CHANGE
from mjp.common.runs.recipe import load_recipe, plain_value, value_of
from mjp.common.validate import number, whole

# the smallest values of a run's numbers
LEAST_WHOLE = {
    **dict.fromkeys(("views", "captions", "epochs", "batch_size", "eval_every", "log_every", "limit", "stop_after"), 1),
    "chunk": 1,
    **{"workers": 0, "max_unreadable": 0, "classes": 0},
}
LEAST_REAL = {
    **dict.fromkeys(("lr", "weight_decay", "warmup_epochs", "clip_grad", "margin", "hard_warmup"), 0.0),
    "backbone_lr": 0.0,
    **{"teacher_scale": 1e-6, "student_scale": 1e-6},
}


@dataclass(kw_only=True)
class AladinTraining:
    """A training run. Fields not given on the command line come from the recipe."""

    phase: Literal["align", "distill", "joint", "classes"] = "align"
    """align: encoders and alignment head. distill: matching head, taught by a frozen teacher. joint: all at once.
    classes: the class channel of a trained model (--init)."""
    data: Path = Path("flickr8k")
    """Folder with captions.json and images/, or a COCO or Karpathy json file. Without a dev split a part of train is
    held out for it."""
    pictures: Path | None = None
    """Folder of the pictures, if they are not beside the json file."""
    recipe: str = "aladin_flickr8k"
    """aladin_flickr8k, aladin_classes, aladin_coco, or a YAML file."""
    out: Path | None = None
    """Folder of the run; default: out/aladin-PHASE. An interrupted run in it is resumed."""
    teacher: Path = Path("out/aladin-align")
    """Run or model whose alignment head teaches; for distill."""
    init: Path | None = None
    """Run or model to start from, or aladin-flickr8k: align continues its encoders, distill its matching head."""
    guide: Path | None = None
    """Run or model whose alignment scores teach the alignment head, beside the true pairs; for align."""
    cache: Path = Path("out/aladin-features")
    """Folder for tokens on disk; several runs share it."""
    resume: Path | None = None
    """Checkpoint to continue from instead of the newest one in the folder."""

    objective: Literal["distill+infonce", "distill", "infonce", "triplet"] = "distill+infonce"
    """What the matching head learns from: the teacher, the true pairs, or both; infonce and triplet are controls."""
    align_objective: Literal["triplet", "infonce"] = "triplet"
    """What the alignment head learns from: hardest negatives with a margin, or all negatives of the batch."""
    margin: float = 0.2
    """Margin of the triplet losses."""
    hard_warmup: float = 2.0
    """Epochs over which the triplet losses go from the mean of all negatives to the hardest. Too few, and all scores
    become equal: the loss stays at twice the margin."""
    teacher_scale: float | None = None
    """T of the distillation or of the guide; default: the one that makes the true dev pairs most likely."""
    student_scale: float = 20.0
    """τ of the distillation and of InfoNCE at the start."""
    learn_scale: bool = True
    """Whether τ is learned."""

    views: int = 2
    """Views of training pictures kept on disk: 1 the picture, 2 and its mirror image, more: and random crops."""
    captions: int = 2
    """Captions per picture and step."""
    classes: int = 0
    """ImageNet classes per step, each with a picture and a text, beside the captions; needs lite0:classes."""
    patch_share: float = 1.0
    """Share of the patches of a picture that a step looks at, drawn anew; half of them take half the time."""
    epochs: int = 20
    """Passes over the pictures."""
    batch_size: int = 128
    """Pictures per step and process. Every picture has the captions of all others, in all processes, as negatives."""
    chunk: int | None = None
    """Pictures per graph: larger batches in the memory of this many, for one more forward pass; the gradient is that
    of the whole batch."""
    train_backbone: bool = False
    """Train the backbone too, with --phase align or joint. Its features are then computed in every step."""
    backbone_lr: float = 0.01
    """Learning rate of the backbone as a factor of --lr."""
    amp: Literal["none", "bf16", "fp16"] = "none"
    """Mixed precision of the encoders and of a trained backbone; scores and losses stay in full precision."""
    lr: float = 1e-3
    """Largest learning rate of AdamW."""
    weight_decay: float = 0.05
    """None on biases, norms and the table of words or pieces."""
    warmup_epochs: float = 1.0
    """Epochs of linear warm-up; a cosine follows."""
    clip_grad: float = 2.0
    """Largest norm of the gradient."""
    ema: float = 0.0
    """Decay per step of a moving average of the weights, which is then what is evaluated and saved; 0 = none."""
    max_unreadable: int = 0
    """How many unreadable pictures to tolerate. Each is named and left out."""
    limit: int | None = None
    """Train and evaluate on only this many pictures each."""

    seed: int = 0
    """Seed of weights, order, captions, views and dropout."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    workers: int = 1
    """Processes that read pictures."""
    eval_every: int = 5
    """Epochs between evaluations on dev (the last epoch is always evaluated)."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints inside an epoch; every epoch ends with one."""
    log_every: int = 20
    """Steps between lines in metrics.jsonl."""
    stop_after: int | None = None
    """Stop after this many steps in total, with a checkpoint; rerun the command to continue."""

    model: AladinConfig = field(default_factory=AladinConfig)
    """The model; distill takes all but the matching head from its teacher."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and name in LEAST_WHOLE:
                whole(_flag(name), value, least=LEAST_WHOLE[name])
            if value is not None and name in LEAST_REAL:
                number(_flag(name), value, least=LEAST_REAL[name])
        if not number("--patch-share", self.patch_share, least=0, most=1):
            raise InputError("--patch-share must be above 0: without patches there is nothing to align")
        if number("--ema", self.ema, least=0) >= 1:
            raise InputError(f"--ema must be below 1, not {self.ema}: at 1 the weights of the start would be saved")
        if self.guide is not None and self.phase != "align":
            raise InputError("--guide teaches the alignment head: it goes with --phase align, --teacher with distill")
        self._check_backbone()
        if self.batch_size < 2:
            raise InputError("--batch-size must be at least 2: a picture needs another one to be distinguished from")

    def _check_backbone(self) -> None:
        if self.train_backbone and self.phase not in ("align", "joint"):
            raise InputError(
                "--train-backbone goes with --phase align or joint: the others start from trained encoders"
            )
        if self.train_backbone and (self.classes or self.model.backbone in ("lite0:classes", "lite2:classes")):
            raise InputError(
                "--train-backbone would change what the backbone says of classes: use --model.backbone lite0, without "
                "--classes"
            )
        if self.model.text == "open_clip" and self.phase != ("joint" if self.train_backbone else "align"):
            raise InputError(
                "a pair of open_clip has its own vectors: train its alignment alone with --phase align, or with "
                "--train-backbone both with --phase joint"
            )

    @property
    def aligns(self) -> bool:
        """Whether a step computes alignment scores, to learn them or to teach them."""
        return self.phase != "distill" or "distill" in self.objective

    @property
    def folder(self) -> Path:
        return self.out or Path("out") / f"aladin-{self.phase}"

    def to_yaml(self) -> str:
        return yaml.safe_dump({name: plain_value(value) for name, value in asdict(self).items()}, sort_keys=False)


FREE_TO_CHANGE = RUN_FREE_TO_CHANGE | {"cache"}


def config_from(values: dict[str, Any]) -> AladinTraining:
    """A configuration from plain values as YAML has them."""
    values = dict(values)
    model = values.pop("model", {})
    for section, kind in ((values, AladinTraining), (model, AladinConfig)):
        unknown = sorted(set(section) - {f.name for f in fields(kind)})
        if unknown:
            raise InputError(f"unknown field {', '.join(unknown)}: mjp aladin train --help lists all")
    for name in ("data", "pictures", "out", "teacher", "init", "guide", "cache", "resume"):
        if values.get(name) is not None:
            values[name] = Path(values[name])
    try:
        return AladinTraining(**values, model=AladinConfig(**model))
    except TypeError as error:
        raise InputError(f"a field has a value of the wrong kind: {error}") from error


def parse_arguments(arguments: list[str], description: str) -> AladinTraining:
    """Recipe, then what it says about the phase, then every option given."""
    recipe = value_of(arguments, "--recipe") or "aladin_flickr8k"
    values = load_recipe(recipe, "aladin") | {"recipe": recipe}
    phase = value_of(arguments, "--phase") or values.get("phase", "align")
    phases = values.pop("phases", {})
    default = config_from({**values, "phase": phase, **phases.get(phase, {})})
    config = tyro.cli(AladinTraining, prog="mjp aladin train", args=arguments, description=description, default=default)
    _refuse_unread(config, default)
    return config


def _refuse_unread(config: AladinTraining, default: AladinTraining) -> None:
    """Refuse options without effect. A recipe serves all phases and may set what one of them does not read."""
    options, defaults = (vars(c) | {f"model.{k}": v for k, v in vars(c.model).items()} for c in (config, default))
    unread = [name for name, read in _read(config).items() if not read and options[name] != defaults[name]]
    if unread:
        flags = ", ".join(map(_flag, unread))
        aims = [name for name in ("align_objective", "objective") if _read(config)[name]]
        settings = " ".join(f"{_flag(name)} {options[name]}" for name in ("phase", *aims))
        raise InputError(f"a run with {settings} does not read {flags}: omit it, or change what it depends on")


def _read(config: AladinTraining) -> dict[str, bool]:
    """Whether a run reads the options that not every run does."""
    aligns, matches = config.phase != "distill", config.phase != "align"
    taught = matches and "distill" in config.objective
    hinges = (aligns and config.align_objective == "triplet") or (matches and config.objective == "triplet")
    scaled = matches and config.objective != "triplet"
    frozen = {f.name for f in fields(AladinConfig)} - {"match_layers", "match_shared", "dropout"}
    return {
        **{"teacher": not aligns, "objective": matches, "align_objective": aligns},
        **{"margin": hinges, "hard_warmup": hinges, "student_scale": scaled, "learn_scale": scaled},
        **{"patch_share": aligns, "backbone_lr": config.train_backbone},
        "teacher_scale": taught or config.guide is not None,
        **{f"model.{name}": aligns for name in sorted(frozen)},  # a student has its teacher's
    }


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
