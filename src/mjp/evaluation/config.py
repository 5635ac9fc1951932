"""What `mjp eval` and `mjp study` are asked to do. No torch: the command line prints its help from here."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from mjp.common.errors import InputError
from mjp.common.validate import number, whole
from mjp.evaluation.robustness.corruptions import CORRUPTIONS, SEVERITIES

NAME_A_MODEL = "name at least one model: a shipped name, a folder, timm:NAME, or a hub repository OWNER/NAME"


@dataclass
class EvalConfig:
    models: tyro.conf.Positional[tuple[str, ...]]
    """Models to compare."""
    weights: Path | None = None
    """Weights for the one model that is named: safetensors, .pt or .pth, of a timm or an MJP model."""
    data: str = "embedded"
    """embedded (1,000 CIFAR-10 pictures), a folder of classes, or a folder that has one named val."""
    ratios: tuple[float, ...] = (0.03, 0.09, 0.15, 0.21, 0.27, 0.5, 0.9, 1.0)
    """Mask ratios γ to measure; --ratios without a number leaves the jigsaw out."""
    draws: int = 2
    """Jigsaws per picture and ratio."""
    corrupt: bool = False
    """Corrupt the pictures of --data in the 15 ways of ImageNet-C and measure the error."""
    imagenet_c: Path | None = None
    """Folder CORRUPTION/SEVERITY/CLASS/*: the same from pictures that are already corrupted."""
    corruptions: tuple[str, ...] = CORRUPTIONS
    """Which corruptions."""
    severities: tuple[int, ...] = SEVERITIES
    """Which severities, 1 to 5."""
    imagenet_a: Path | None = None
    """Folder of ImageNet-A's 200 classes: accuracy and AURRA."""
    imagenet_o: Path | None = None
    """Folder of ImageNet-O's 200 classes: AUPR of outliers; needs --imagenet-val."""
    imagenet_val: Path | None = None
    """Folder of ImageNet's validation pictures by class: what ImageNet-O's outliers are told from."""
    allow_missing: bool = False
    """If a corruption, severity or class is missing, measure the rest and report what was missing."""
    seed: int = 0
    """Seed of the jigsaws, the corruptions and the bootstrap."""
    batch_size: int = 128
    """Pictures per forward pass; the results do not depend on it."""
    limit: int | None = None
    """Use only this many pictures of every set, spread over its classes."""
    max_unreadable: int = 0
    """How many unreadable pictures to tolerate; each is named and counts as a wrong answer."""
    workers: int = 1
    """Data loading processes."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    out: Path = Path("out/eval")
    """Folder for results.json, sweep.png, robustness.png and corruptions.png."""

    def check(self) -> None:
        """Refuse options that are out of range or contradict each other."""
        check_models(self.models, self.weights)
        for name, least in (("draws", 1), ("batch_size", 1), ("workers", 0), ("max_unreadable", 0), ("seed", 0)):
            whole(f"--{name.replace('_', '-')}", getattr(self, name), least=least)
        if self.limit is not None:
            whole("--limit", self.limit, least=1)
        for ratio in self.ratios:
            number("--ratios", ratio, least=0, most=1)
        self._check_robustness()

    def _check_robustness(self) -> None:
        if odd := [name for name in self.corruptions if name not in CORRUPTIONS]:
            raise InputError(f"--corruptions: there is no {odd[0]!r}, choose from {', '.join(CORRUPTIONS)}")
        if not self.corruptions or not self.severities or set(self.severities) - set(SEVERITIES):
            raise InputError("--corruptions needs at least one name and --severities at least one of 1, 2, 3, 4, 5")
        if self.corrupt and self.imagenet_c:
            raise InputError("--corrupt and --imagenet-c give the same figures from different pictures: choose one")
        if (self.imagenet_o is None) != (self.imagenet_val is None):
            raise InputError("--imagenet-o needs --imagenet-val and the other way round: outliers are told from it")


@dataclass
class StudyConfig:
    models: tyro.conf.Positional[tuple[str, ...]]
    """Models to study: shipped names, folders, timm:NAME, or hub repositories."""
    weights: Path | None = None
    """Weights for the one model that is named: safetensors, .pt or .pth, of a timm or an MJP model."""
    pictures: tuple[Path, ...] = ()
    """Pictures for the attention maps; default: two embedded ones."""
    folds: int = 5
    """Folds of the cross-validation."""
    seed: int = 0
    """Seed of the folds and of UMAP."""
    out: Path = Path("out/study")
    """Folder for results.json, positions-*.png and attention.png."""

    def check(self) -> None:
        check_models(self.models, self.weights)
        whole("--folds", self.folds, least=2)
        number("--seed", self.seed, least=0, most=2**32 - 1)  # UMAP takes no larger one


def check_models(models: tuple[str, ...], weights: Path | None) -> None:
    if not models:
        raise InputError(NAME_A_MODEL)
    if weights is not None and len(set(models)) > 1:
        raise InputError("--weights belong to one model: name one, and compare models that are saved as folders")
