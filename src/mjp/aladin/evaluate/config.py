"""The settings of `mjp aladin eval`. No torch in here: the command line prints its help from this file."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from mjp.common.errors import InputError
from mjp.common.validate import fraction, seed, whole, workers


@dataclass
class EvalConfig:
    models: tyro.conf.Positional[tuple[str, ...]]
    """Folders of models or of runs of mjp aladin train, or aladin-flickr8k."""
    data: Path | None = None
    """Folder with captions.json and images/, or a COCO or Karpathy json file."""
    labels: Path | None = None
    """Folder with a folder of pictures per class: measure what the names of classes, and of kinds of them, find."""
    pictures: Path | None = None
    """Folder of the pictures, if they are not beside the json file."""
    split: str = "test"
    """Split to report on."""
    choose_on: str = "dev"
    """Split on which the number of re-ranked candidates is chosen."""
    rerank: tuple[int, ...] = (5, 10, 20, 50)
    """Numbers of re-ranked candidates to choose from; a single number is used as it is."""
    fold: int | None = None
    """Also report the mean over galleries of this many pictures (1000 for COCO's 1K figures)."""
    latency: tuple[int, ...] = (1_000, 10_000, 100_000)
    """Gallery sizes for the latency of a search; --latency without a number skips it."""
    mask_ratios: tuple[float, ...] = ()
    """Also measure recall with the positions of these shares of patches hidden, for models on a ViT."""
    draws: int = 1
    """Jigsaws per picture and mask ratio."""
    limit: int | None = None
    """Use only the first pictures of each split."""
    cache: Path = Path("out/aladin-features")
    """Folder for tokens on disk."""
    max_unreadable: int = 0
    """How many unreadable pictures to tolerate. Each is named and left out."""
    seed: int = 0
    """Seed of the bootstrap and of the jigsaws."""
    workers: int = 1
    """Processes that read pictures."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    out: Path = Path("out/aladin-eval")
    """Folder for results.json, latency.png and masking.png."""

    def check(self) -> None:
        """Refuse what cannot be measured, before anything is computed."""
        if not self.models:
            raise InputError("name at least one model: the folder of a model, or of a run of mjp aladin train")
        if self.data is None and self.labels is None:
            raise InputError("give pictures with captions (--data), or pictures in folders of classes (--labels)")
        if self.data is None and self.mask_ratios:
            raise InputError("--mask-ratios measures the recall of captions: it needs --data")
        if not self.rerank or min(self.rerank) < 1:
            raise InputError("--rerank needs numbers of at least 1")
        if len(self.rerank) > 1 and self.choose_on == self.split:
            raise InputError("choose --rerank on another split than the one to report on, or give a single number")
        for size in self.latency:
            whole("--latency", size, least=1)
        for ratio in self.mask_ratios:
            fraction("--mask-ratios", ratio)
        if self.mask_ratios and not max(self.mask_ratios):
            raise InputError("--mask-ratios needs a ratio above 0; γ = 0 is always measured")
        whole("--draws", self.draws, least=1)
        seed("--seed", self.seed)
        workers("--workers", self.workers)
        whole("--max-unreadable", self.max_unreadable)
        for option, value in (("--fold", self.fold), ("--limit", self.limit)):
            if value is not None:
                whole(option, value, least=1)
