"""Which robustness sets a command asks for; folders that are not complete are refused."""

from pathlib import Path
from typing import Protocol

from mjp.evaluation.robustness.imagenet_subsets import IMAGENET_A, IMAGENET_O
from mjp.evaluation.robustness.measure import Robustness
from mjp.evaluation.robustness.sets import CorruptedFolders, Generated, Grid, ImageNetSubset
from mjp.pictures.sets import Pictures


class Request(Protocol):
    """The options of `mjp eval` that are about robustness."""

    corrupt: bool
    imagenet_c: Path | None
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    imagenet_a: Path | None
    imagenet_o: Path | None
    imagenet_val: Path | None
    allow_missing: bool
    seed: int


def requested_robustness(request: Request, pictures: Pictures | None) -> Robustness:
    natural = outliers = None
    if request.imagenet_a:
        natural = ImageNetSubset(request.imagenet_a, IMAGENET_A, request.allow_missing)
    if request.imagenet_o and request.imagenet_val:
        outliers = (
            ImageNetSubset(request.imagenet_o, IMAGENET_O, request.allow_missing),
            ImageNetSubset(request.imagenet_val, IMAGENET_O, request.allow_missing, others_too=True),
        )
    return Robustness(_grid(request, pictures), natural, outliers)


def _grid(request: Request, pictures: Pictures | None) -> Grid | None:
    names, severities = tuple(dict.fromkeys(request.corruptions)), tuple(sorted(set(request.severities)))
    if request.corrupt and pictures:
        return Generated(pictures, names, severities, request.seed)
    if request.imagenet_c:
        return CorruptedFolders(request.imagenet_c, names, severities, request.allow_missing)
    return None
