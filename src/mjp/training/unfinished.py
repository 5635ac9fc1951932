"""The model of a run that has not ended: what its last checkpoint holds, as the end of the run would save it."""

from pathlib import Path
from typing import Any, NamedTuple

from mjp.common.errors import InputError
from mjp.common.read import read_yaml
from mjp.common.runs.checkpoint import find_checkpoint, load_checkpoint
from mjp.method.model import MJP
from mjp.training.arguments import config_from
from mjp.training.build import build_model
from mjp.training.data import load_data, preprocessing


class Unfinished(NamedTuple):
    model: MJP
    step: int


def is_unfinished(folder: Path) -> bool:
    """Whether this is the folder of a run that has a checkpoint but no model yet."""
    config, checkpoint = folder / "config.yaml", find_checkpoint(folder / "checkpoints")
    return config.is_file() and checkpoint is not None and not (folder / "model" / "config.json").is_file()


def load_unfinished(folder: Path) -> Unfinished:
    """The model at the last checkpoint: the moving average of its weights, if the run keeps one."""
    checkpoint = find_checkpoint(folder / "checkpoints")
    if checkpoint is None:
        raise InputError(f"{folder} has no checkpoint yet: wait for the first one")
    state = load_checkpoint(checkpoint)
    config = config_from(read_yaml(folder / "config.yaml"))
    classes = load_data(config)[0].classes
    model = build_model(config, len(classes))
    try:
        model.load_state_dict(state["ema"] or state["model"])
        step = int(state["step"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{checkpoint} does not belong to {folder / 'config.yaml'}: begin again") from error
    statistics: Any = model.model.pretrained_cfg
    model.classes = classes
    model.preprocessing = preprocessing(config, statistics["mean"], statistics["std"])
    return Unfinished(model.eval(), step)
