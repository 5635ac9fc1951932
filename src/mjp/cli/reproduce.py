"""Train and measure what a table of the paper needs, in miniature, with error bars and a verdict on every claim.

mjp reproduce finetune --data DIR --checkpoint deit_tiny_patch16_224.safetensors

mjp reproduce scratch --data CIFAR10 --only backbones --seeds 0 1 2

Finished runs are never repeated: rerun the same command to resume. --dry-run prints the runs and the expected time.
To share the work, give every machine a part (--shard 1/4, ...), copy the files of FOLDER/cells together, and run the
command with --collect.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

if TYPE_CHECKING:
    from mjp.common.results import Results


@dataclass
class Options:
    scale: tyro.conf.Positional[str]
    """finetune, scratch, imagenet (for GPUs), toy (seconds, proves nothing), or a YAML file."""
    data: str | None = None
    """Folder with train/CLASS/* and val/CLASS/*; the scale says which data set."""
    checkpoint: Path | None = None
    """Pretrained weights that the scale fine-tunes."""
    only: tuple[str, ...] = ()
    """Tables to compute; default: all."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds; a verdict needs at least two, and three or more to be worth much."""
    jobs: int | None = None
    """Processes at a time, one thread each; default: one per core."""
    shard: str = "1/1"
    """Compute part i of n only: i/n."""
    collect: bool = False
    """Compute nothing: make tables and verdicts from the cells that are there."""
    dry_run: bool = False
    """Print the runs and the expected time, and stop."""
    out: Path | None = None
    """Folder for cells, runs and results; default: out/reproduce/SCALE."""


def run(options: Options) -> "Results | None":
    from mjp.reproduce.command import reproduce

    return reproduce(options)
