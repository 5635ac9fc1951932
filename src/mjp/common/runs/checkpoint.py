"""Checkpoints that survive a kill at any moment.

    RUN/
      config.yaml          all that defines the run
      metrics.jsonl        one line per logged step and per epoch
      checkpoints/
        last.pt            weights, moving average, optimizer, scaler, position in the run, sums of the epoch
        previous.pt        the one before
      curve.png, model/    at the end: training curve; the model as `MJP.from_pretrained` reads it

A checkpoint is written to a temporary name, synced and renamed. It holds tensors and plain values only and is read with
torch's weights-only loader.
"""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mjp.common.errors import InputError, first_line
from mjp.common.files import write_atomically
from mjp.common.weights import EXTRA_STATE, read_torch

FORMAT = "mjp-training-2"


def save_checkpoint(folder: Path, state: dict[str, Any]) -> Path:
    """Write last.pt; the one that was there becomes previous.pt."""
    folder.mkdir(parents=True, exist_ok=True)
    last, previous, fresh = folder / "last.pt", folder / "previous.pt", folder / "fresh.pt"
    try:
        write_atomically(fresh, lambda path: torch.save({"format": FORMAT, **state}, path))
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        newest = find_checkpoint(folder)
        rest = "there is none yet" if newest is None else f"the last one is intact: {newest}"
        raise InputError(f"no checkpoint could be written to {folder} ({first_line(error)}); {rest}") from error
    if last.exists():
        os.replace(last, previous)
    os.replace(fresh, last)
    return last


def find_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of a run. Killed between two renames, a run has a fresh.pt that is complete."""
    for name in ("fresh.pt", "last.pt", "previous.pt"):
        if (folder / name).exists():
            return folder / name
    return None


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint; refuse a damaged or foreign one by name, and offer the previous one."""
    state = read_torch(path, what="checkpoint", advice=_advice(path))
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise InputError(f"{path} is not a checkpoint of mjp train: {_advice(path)}")
    return state


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """All tensors by name, without where a model stands in drawing plans of its own: a run draws them by step."""
    return {name: tensor for name, tensor in model.state_dict().items() if not name.endswith(EXTRA_STATE)}


def _advice(path: Path) -> str:
    previous = path.with_name("previous.pt")
    if path.name != "previous.pt" and previous.exists():
        return f"--resume {previous} continues from the one before"
    return "begin again with another --out"
