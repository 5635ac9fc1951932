"""Start from pretrained weights: timm's, or those of a file, a saved model or another run.

The timm model takes what it can before it is wrapped, so that E_unk can start from the mean of the loaded position
table. A head for another number of classes is left out, and the position table is resampled to the grid of the input.
"""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from timm.layers import RelPosBias, resample_abs_pos_embed, resize_rel_pos_bias_table
from timm.models import Cait, VisionTransformerRelPos
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.common.runs.checkpoint import find_checkpoint
from mjp.models import create_timm, read_weights

Grid = tuple[int, int]
WRAPPER_NAMES = ("unknown", "index", "pos_embed", "rotation", "biases")  # of what MJP adds, beside the localizer
BIASES = "relative_position_bias_table"
MAX_NAMES = 6  # of layers in a message


@dataclass
class Loaded:
    """What was taken over from pretrained weights, and what was not."""

    source: str
    loaded: set[str] = field(default_factory=set)  # names in the wrapped model
    new: set[str] = field(default_factory=set)  # names in the wrapped model that keep their initial values
    unused: set[str] = field(default_factory=set)  # names in the file
    replaced: set[str] = field(default_factory=set)  # of `unused`: a head for another number of classes
    resampled: tuple[Grid, Grid] | None = None  # the grid of the file, the grid of the model
    resampled_biases: int = 0  # tables of relative biases

    def lines(self) -> list[str]:
        """The report that a person reads."""
        lines = [f"{len(self.loaded)} tensors from {self.source}"]
        if self.resampled is not None:
            before, after = (f"{rows}×{columns}" for rows, columns in self.resampled)
            lines.append(f"position table resampled from {before} to {after}")
        if self.resampled_biases:
            lines.append(f"{self.resampled_biases} tables of relative biases resampled")
        if self.replaced:
            lines.append(f"replaced, for another number of classes: {_names(self.replaced)}")
        if self.new:
            lines.append(f"new: {_names(self.new)}")
        if self.unused - self.replaced:
            lines.append(f"in the file and not used: {_names(self.unused - self.replaced)}")
        return lines


def pretrained_weights(
    *, model: str, pretrained: bool, checkpoint: Path | None
) -> tuple[str, dict[str, Tensor]] | None:
    """(where they come from, tensors by their names in timm), or None for a model that starts at random."""
    if checkpoint is not None:
        return str(checkpoint), read_weights(_weights_file(checkpoint.expanduser()))
    if not pretrained:
        return None
    with torch.random.fork_rng(devices=[]):
        return f"timm's {model}", create_timm(model, None, {}).state_dict()


def load_into_timm(model: Any, source: str, weights: dict[str, Tensor]) -> Loaded:
    """Load what fits a bare timm model; refuse weights of another model."""
    expected = model.state_dict()
    report = Loaded(source)
    weights = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    extra = {name: weights.pop(name) for name in list(weights) if _belongs_to_wrapper(name, expected)}
    report.replaced = {name for name in _head_names(model) & weights.keys() if _differs(weights, expected, name)}
    fitting = _fitted(model, {n: t for n, t in weights.items() if n not in report.replaced}, source)
    if "pos_embed" in fitting and _differs(weights, fitting, "pos_embed"):
        report.resampled = (_square_grid(weights["pos_embed"], model), tuple(model.patch_embed.grid_size))
    biases = [name for name in fitting.keys() & weights.keys() if name.endswith(BIASES)]
    report.resampled_biases = sum(_differs(weights, fitting, name) for name in biases)
    common = fitting.keys() & expected.keys()
    if not common - {"pos_embed"}:
        raise InputError(f"{source} holds no weights of this model: it has {_names(weights)}, not {_names(expected)}")
    if wrong := sorted(name for name in common if _differs(fitting, expected, name)):
        shapes = [f"{n} {tuple(fitting[n].shape)} instead of {tuple(expected[n].shape)}" for n in wrong[:3]]
        raise InputError(f"{source} belongs to another model: it has {', '.join(shapes)}. Name its --model")
    _refuse_useless(source, {name: fitting[name] for name in common}, expected)
    model.load_state_dict({name: fitting[name] for name in common}, strict=False)
    report.loaded = {f"model.{name}" for name in common}
    report.unused = {*(weights.keys() - common), *extra}
    return report


def load_into_wrapper(model: Any, weights: dict[str, Tensor], report: Loaded) -> None:
    """Load what MJP adds to a model (E_unk, index table, localization head), if it is there, and finish the report."""
    expected = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("model.")}
    fitting = {name: weights[name].float() for name in expected.keys() & report.unused}
    for name in {"index", "pos_embed"} & fitting.keys():
        if _differs(fitting, expected, name):
            table, grid = fitting[name], tuple(model.model.patch_embed.grid_size)
            report.resampled = (_square_grid(table, None), grid)
            fitting[name] = resample_abs_pos_embed(table, list(grid), num_prefix_tokens=0)
    fitting = {name: tensor for name, tensor in fitting.items() if not _differs(fitting, expected, name)}
    model.load_state_dict(fitting, strict=False)
    report.loaded |= fitting.keys()
    report.unused -= fitting.keys()
    report.new = {name for name, _ in model.named_parameters()} - report.loaded


def _refuse_useless(source: str, weights: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Refuse weights from which no training starts: NaN, infinity, or the integers of a quantised model."""
    for name, tensor in sorted(weights.items()):
        if expected[name].is_floating_point() and not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise InputError(f"{source}: {name} is of type {kind}, a quantised model: convert it to float32")
        if not bool(tensor.isfinite().all()):
            raise InputError(f"the weights in {source} hold NaN or infinity, first in {name}: take another checkpoint")


def _weights_file(path: Path) -> Path:
    """The file itself, or the one of a saved model or of a run, finished or not."""
    if not path.is_dir():
        return path
    for candidate in (path / "model.safetensors", path / "model" / "model.safetensors"):
        if candidate.is_file():
            return candidate
    newest = find_checkpoint(path / "checkpoints")
    if newest is None:
        raise InputError(f"{path} holds neither a saved model nor a run with a checkpoint")
    return newest


def _fitted(model: Any, weights: dict[str, Tensor], source: str) -> dict[str, Tensor]:
    """Names and shapes as the model has them: timm's own conversion for its family, then the position table."""
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    try:
        fitting: dict[str, Tensor] = weights if convert is None else dict(convert(weights, model))
    except (RuntimeError, KeyError, AttributeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{source} belongs to another model: timm cannot convert its weights ({reason})") from error
    # timm resamples the tables of its other families in their conversions
    if isinstance(model, VisionTransformerRelPos):
        fitting = {**fitting, **_resampled_biases(model, fitting)}
    if isinstance(model, Cait) and _differs(fitting, {"pos_embed": model.pos_embed}, "pos_embed"):
        grid = list(cast(Any, model.patch_embed).grid_size)
        fitting = {**fitting, "pos_embed": resample_abs_pos_embed(fitting["pos_embed"], grid, num_prefix_tokens=0)}
    return fitting


def _resampled_biases(model: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tables of relative biases, for the grid of the model."""
    parts = {f"{name}.{BIASES}": part for name, part in model.named_modules() if isinstance(part, RelPosBias)}
    return {
        name: resize_rel_pos_bias_table(weights[name], part.window_size, tuple(part.relative_position_bias_table.shape))
        for name, part in parts.items()
        if name in weights
    }


def _belongs_to_wrapper(name: str, expected: dict[str, Tensor]) -> bool:
    return name not in expected and (name in WRAPPER_NAMES or name.startswith("localizer."))


def _head_names(model: Any) -> set[str]:
    cfg: Any = getattr(model, "pretrained_cfg", None) or {}
    classifier = cfg.get("classifier") or ()
    layers = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    return {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}


def _square_grid(table: Tensor, model: Any) -> Grid:
    """The grid of a (1, prefix + N, D) table that does not say so: timm's tables are square."""
    prefix = 0 if model is None else model.pos_embed.shape[1] - math.prod(model.patch_embed.grid_size)
    side = int((table.shape[1] - prefix) ** 0.5)
    return side, side


def _differs(left: dict[str, Tensor], right: dict[str, Tensor], name: str) -> bool:
    return name in left and name in right and left[name].shape != right[name].shape


def _names(parameters: Iterable[str]) -> str:
    """The layers that parameters belong to, by their names in timm; not all of a long list."""
    layers = sorted({name.removeprefix("model.").removesuffix(".weight").removesuffix(".bias") for name in parameters})
    more = len(layers) - MAX_NAMES
    return ", ".join(layers[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
