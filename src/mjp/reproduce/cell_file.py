"""The files of finished cells, FOLDER/cells/RUN-SEED.json: what is damaged or belongs elsewhere is refused."""

import base64
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from mjp.common.errors import InputError, shorten
from mjp.common.read import read_object
from mjp.common.results import plain
from mjp.common.validate import fraction, number, seed, whole
from mjp.evaluation.robustness.metrics import ALEXNET
from mjp.method.config import SamplerName
from mjp.reproduce.scale import Scale

CELLS = "cells"
ADVICE = "remove it, and run the command again"
Cells = dict[str, dict[int, dict[str, Any]]]  # run → seed → what was measured
Check = Callable[[str, Any], object]  # of a name and its value; refuses a value that makes no sense


def read_cells(folder: Path, scale: Scale) -> Cells:
    """The finished cells of a scale, by run and seed."""
    cells: Cells = {name: {} for name in scale.runs}
    for path in sorted((folder / CELLS).glob("*.json")):
        cell = _read_cell(path)
        if (run := cell["run"]) in cells:
            _check_settings(path, "trained", cell["train"], plain(scale.runs[run].train))
            if "measured" in cell:  # the oldest cells do not have it
                _check_settings(path, "measured", cell["measured"], plain(scale.measured(scale.runs[run])))
            cells[run][cell["seed"]] = cell
    _check_pictures(folder, cells)
    _check_epochs(folder, cells)
    return cells


def _read_cell(path: Path) -> dict[str, Any]:
    cell = read_object(path, advice=ADVICE)
    try:
        _check_fields("the file", {"measured": {}, "sources": {}, **cell}, CELL)  # the oldest cells have neither
        if path.stem != f"{cell['run']}-{cell['seed']}":
            raise InputError(f"it holds seed {cell['seed']} of the run {shorten(cell['run'])}")
    except InputError as error:
        raise InputError(f"{path} is not a cell of mjp reproduce ({error}): {ADVICE}") from error
    return cell


def _check_settings(path: Path, done: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    if names := sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name)):
        raise InputError(
            f"{path} was {done} with other settings than the scale has now ({', '.join(names)}): choose another "
            "--out, or remove the file to compute it anew"
        )


def _check_pictures(folder: Path, cells: Cells) -> None:
    """Refuse cells that cannot be compared picture by picture, without a jigsaw or at one of the settings."""
    counts: dict[Any, set[int]] = defaultdict(set)
    for by_seed in cells.values():
        for cell in by_seed.values():
            for setting, count in _pictures_by_setting(cell["outcomes"]).items():
                counts[setting].add(count)
    if different := next((sizes for sizes in counts.values() if len(sizes) > 1), None):
        raise InputError(
            f"the cells in {folder} were judged on different numbers of pictures "
            f"({', '.join(map(str, sorted(different)))}): bring together cells of the same data only"
        )


def _pictures_by_setting(outcomes: dict[str, Any]) -> dict[Any, int]:
    """How many pictures there are by (γ, sampler), None for no jigsaw; of two points at a setting the first counts."""
    points = {(point["ratio"], point["sampler"]): point["pictures"] for point in reversed(outcomes["points"])}
    return {None: outcomes["pictures"], **points}


def _check_epochs(folder: Path, cells: Cells) -> None:
    """Refuse curves of one run that have different epochs: the figure averages them."""
    for run, by_seed in cells.items():
        if len({tuple(epoch for epoch, _ in cell["figures"]["curve"]) for cell in by_seed.values()}) > 1:
            raise InputError(
                f"the curves of {run} in {folder / CELLS} have different epochs from seed to seed: remove the cells "
                "whose epochs are wrong, and run the command again"
            )


def _check_fields(name: str, value: Any, checks: Mapping[str, Check]) -> None:
    """An object that has all of these fields."""
    _object(name, value)
    for field, check in checks.items():
        if field not in value:
            raise InputError(f"{name} lacks the field {field}")
        check(field, value[field])


def _object(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise InputError(f"{name} must be an object, not {shorten(value)}")


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, not {shorten(value)}")


def _optional(check: Check, name: str, value: Any) -> None:
    if value is not None:
        check(name, value)


def _truth(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, not {shorten(value)}")


def _sampler(name: str, value: Any) -> None:
    if value not in (choices := get_args(SamplerName)):
        raise InputError(f"{name} must be one of {', '.join(choices)}, not {shorten(value)}")


def _bits(name: str, value: Any, count: int) -> None:
    """Base64 of as many bits as there are pictures, in whole bytes, as `outcomes.pack` writes them."""
    _text(name, value)
    try:
        content = base64.b64decode(value)
    except ValueError:
        content = b""
    if len(content) != -(-count // 8) or base64.b64encode(content).decode() != value:
        raise InputError(f"{name} must hold a bit for each of {count} pictures")


def _judged(checks: Mapping[str, Check], bits: tuple[str, ...], name: str, value: Any) -> None:
    """What happened to a number of pictures: these fields, and fields with a bit for each picture."""
    _check_fields(name, value, {"pictures": partial(whole, least=1), **checks})
    _check_fields(name, value, {field: partial(_bits, count=value["pictures"]) for field in bits})


def _points(name: str, value: Any) -> None:
    if not isinstance(value, list):
        raise InputError(f"{name} must be a list, not {shorten(value)}")
    for point in value:
        _judged(POINT, ("right", "same"), "a point", point)


def _numbers(shape: tuple[int | None, ...], name: str, value: Any) -> None:
    """Lists of numbers in lists; None in the shape stands for any length but 0."""
    array = np.array(value, dtype=object)
    fits = array.ndim == len(shape) and shape[-1] in (None, array.shape[-1])
    if not (fits and array.size and {type(entry) for entry in array.flat} <= {int, float}):
        sides = " × ".join("N" if side is None else str(side) for side in shape)
        raise InputError(f"{name} must be {sides} numbers")


def _curve(name: str, value: Any) -> None:
    """[epoch, accuracy] of every epoch after which there was a validation, maybe none."""
    if value == []:
        return
    _numbers((None, 2), name, value)
    for epoch, _ in value:
        whole(f"an epoch of {name}", epoch)


def _corruptions(name: str, value: Any) -> None:
    """A number for each of the corruptions, and nothing else."""
    _check_fields(name, value, dict.fromkeys(ALEXNET, number))
    if unknown := value.keys() - ALEXNET.keys():
        raise InputError(f"{name} has no corruption {shorten(min(unknown))}")


def _figures(name: str, value: Any) -> None:
    """Numbers, null where one was not measured, except for the figures that have a shape of their own."""
    _object(name, value)
    for figure, content in value.items():
        FIGURES.get(figure, partial(_optional, number))(figure, content)
    if "curve" not in value:
        raise InputError(f"{name} lacks the field curve")
    if ("corruption" in value) != ("corruption_by_name" in value):
        raise InputError("corruption and corruption_by_name go together")
    if value.get("umap") is not None and len(value["umap"]) != len(value.get("pca", ())):
        raise InputError("umap and pca must have as many points")


FIGURES: dict[str, Check] = {
    "curve": _curve,
    "pca": partial(_numbers, (None, 2)),
    "umap": partial(_optional, partial(_numbers, (None, 2))),
    "attention": partial(_numbers, (None, None, None)),
    "corruption_by_name": _corruptions,
}
POINT: dict[str, Check] = {
    "ratio": fraction,
    "unknown": _truth,
    "sampler": _sampler,
    "diff_norm": number,
    "diff_relative": number,
}
CELL: dict[str, Check] = {
    "run": _text,
    "seed": seed,
    "train": _object,
    "measured": _object,
    "sources": _object,
    "figures": _figures,
    "outcomes": partial(_judged, {"points": _points}, ("right",)),
    "seconds": partial(number, least=0),
}
