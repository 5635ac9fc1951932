"""The options of `mjp reproduce`. No torch in here: the command line prints its help from this file."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from mjp.common.errors import InputError
from mjp.common.validate import seed, whole


@dataclass
class ReproduceConfig:
    """What to compute, from what, and where to."""

    scale: tyro.conf.Positional[str]
    """finetune, finetune_search (how its settings were chosen), finetune_long (longer training), scratch, imagenet (for
    GPUs), toy (seconds, proves nothing), or a YAML file."""
    data: str | None = None
    """Folder with train/CLASS/* and val/CLASS/*; the scale says which data set."""
    checkpoint: Path | None = None
    """Pretrained weights that the scale fine-tunes."""
    scenes: Path | None = None
    """Folder of pictures with masks (CamVid's or ADE20K's layout), for the runs of the scale that are segmented."""
    only: tuple[str, ...] = ()
    """Tables to compute; default: all."""
    seeds: tuple[int, ...] | None = None
    """Seeds; default: the scale's, mostly 0 1 2. A verdict needs at least two, and three or more to be worth much."""
    jobs: int | None = None
    """Cells at a time, a process for each; default: one per core, or one per GPU."""
    device: str = "auto"
    """cpu, cuda, or auto: GPUs if there are any."""
    shard: str = "1/1"
    """Compute part i of n only: i/n."""
    collect: bool = False
    """Compute nothing: make tables and verdicts from the cells that are there."""
    dry_run: bool = False
    """Print the runs and the expected time, and stop."""
    out: Path | None = None
    """Folder for cells, runs and results; default: out/reproduce/SCALE."""

    def check(self) -> None:
        """Refuse numbers that make no sense."""
        if self.jobs is not None:
            whole("--jobs", self.jobs, least=1)
        for value in self.seeds or ():
            seed("--seeds", value)
        if self.seeds is not None and len(set(self.seeds)) < max(1, len(self.seeds)):
            raise InputError("--seeds takes one seed or more, each once, as in --seeds 0 1 2")
