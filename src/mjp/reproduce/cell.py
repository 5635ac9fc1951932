"""One cell of the grid: train a run with one seed, measure it, write one file.

FOLDER/cells/J-0.json      what was measured; a cell with this file is done
FOLDER/runs/J-0/           its training run, as `mjp train` leaves it; may be removed when the file exists
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mjp.common.device import pick_device
from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.common.results import plain
from mjp.common.runs.log import Log
from mjp.common.runs.recipe import load_recipe
from mjp.reproduce.cell_file import CELLS
from mjp.reproduce.kernels import use_fast_kernels
from mjp.reproduce.measure import measure_model
from mjp.reproduce.scale import Cell
from mjp.reproduce.scale_file import load_scale
from mjp.reproduce.scenes import measure_scenes
from mjp.reproduce.sources import sources
from mjp.training.arguments import config_from
from mjp.training.engine import train


@dataclass(frozen=True)
class Place:
    """Where a cell finds its data and puts its results; the same for all cells of a grid."""

    scale: str
    folder: Path
    data: str
    checkpoint: Path | None
    scenes: Path | None = None
    device: str = "cpu"


def path_of(folder: Path, cell: Cell) -> Path:
    return folder / CELLS / f"{cell.name}.json"


def compute_alone(place: Place, run: str, seed: int, slot: int) -> float:
    """Compute a cell in a process of its own, which has a core, or the GPU of this number, to itself."""
    device = pick_device(place.device, slot % max(1, torch.cuda.device_count()))  # --jobs may exceed the GPUs
    if device.type == "cpu":
        torch.set_num_threads(1)
        use_fast_kernels()
    return compute(place, run, seed, device)


def compute(place: Place, run: str, seed: int, device: torch.device) -> float:
    """Train and measure one cell, unless its file exists; how many seconds that took."""
    started = time.monotonic()
    scale = load_scale(place.scale)
    cell = Cell(scale.runs[run], seed)
    path = path_of(place.folder, cell)
    if path.exists():
        return 0.0
    config = config_from(training_values(place, cell, device))
    folder = place.folder / "runs" / cell.name
    earlier = seconds_in_log(folder, config.batch_size * config.accumulate)
    train(config)
    outcomes, figures = measure_model(str(folder), place.data, scale, cell.run.measure, device)
    if "segment" in cell.run.measure and place.scenes is not None:  # the command refuses to start without it
        figures |= measure_scenes(folder, place.scenes, scale.segment, seed, device)
    content = {
        "run": run,
        "seed": seed,
        "train": plain(cell.run.train),
        "measured": plain(scale.measured(cell.run)),
        "sources": sources(place.data, place.checkpoint),
        "figures": {**figures, **training_figures(folder)},
        "outcomes": outcomes,
        "seconds": round(earlier + time.monotonic() - started),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, allow_nan=False)
    write_atomically(path, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8"))
    return time.monotonic() - started


def training_values(place: Place, cell: Cell, device: torch.device) -> dict[str, Any]:
    """The fields of `mjp train` for a cell: the recipe's, then those of the scale and the run."""
    recipe = load_recipe(cell.run.train["recipe"])
    values = {**recipe, **cell.run.train, "mjp": {**recipe.get("mjp", {}), **cell.run.train.get("mjp", {})}}
    out = str(place.folder / "runs" / cell.name)
    values |= {"data": place.data, "seed": cell.seed, "out": out, "device": str(device)}
    values.setdefault("secret_key", None)  # no update leaves, and a cell must come out the same again
    if place.checkpoint is not None:
        values["checkpoint"] = str(place.checkpoint)
    return values


def seconds_in_log(folder: Path, step_size: int) -> float:
    """How long the finished epochs of an interrupted run took: they are not computed again."""
    seconds, last = 0.0, 0
    for epoch in Log(folder, tensorboard=False).read("epoch"):
        seconds += (epoch["step"] - last) * step_size / epoch["images_per_second"]
        last = epoch["step"]
    return seconds


def training_figures(folder: Path) -> dict[str, Any]:
    """What the log of a run says: accuracy after every epoch, and the loss of the last one."""
    log = Log(folder, tensorboard=False)
    epochs = log.read("epoch")
    curve = [[entry["epoch"], entry["val_top1"]] for entry in epochs if entry.get("val_top1") is not None]
    if not epochs:
        raise InputError(f"the log of {folder} holds no epochs: remove the folder, and run the command again")
    halfway = [top1 for epoch, top1 in curve if 2 * epoch <= len(epochs)]
    return {
        "curve": curve,
        "top1_halfway": halfway[-1] / 100 if halfway else None,
        "train_loss": epochs[-1]["train_loss"],
    }
