"""In a simulation the pictures are at hand: what the attacks got of them, and what to show of it."""

from pathlib import Path
from typing import NamedTuple

from safetensors.torch import save_file
from torch import Tensor

from mjp.common.files import write_atomically
from mjp.common.weights import read_tensors
from mjp.federated.auditor import LeakReport
from mjp.privacy.metrics import psnr

PICTURE = "picture"
TOGETHER = "all rounds"


class Truth(NamedTuple):
    """The reconstruction that is closest to one of the pictures; None where no attack ran."""

    picture: Tensor  # (3, H, W) in [0, 1]
    reconstruction: Tensor | None
    attack: str
    psnr: float | None
    guess: float  # PSNR of the data-free guess for the same picture


def compare(report: LeakReport, pictures: Tensor, guess: Tensor) -> Truth:
    """Every reconstruction against every (n, 3, H, W) picture that took part; the closest pair counts."""
    best = Truth(pictures[0], None, "", None, _psnr(pictures[0], guess))
    for finding in report.findings:
        for rebuilt in () if finding.pictures is None else finding.pictures:
            for picture in pictures:
                decibels = _psnr(picture, rebuilt)
                if best.psnr is None or decibels > best.psnr:
                    best = Truth(picture, rebuilt, finding.attack, decibels, _psnr(picture, guess))
    return best


def _psnr(picture: Tensor, other: Tensor) -> float:
    return float(psnr(picture.double(), other.double().clamp(0, 1)))


class Leaks:
    """The first client's picture and what every round gave away of it, in a file of the scenario's folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "leaks.safetensors"
        self.tiles: dict[str, Tensor] = read_tensors(self.path) if self.path.is_file() else {}

    def keep(self, number: int, truth: Truth) -> None:
        self.tiles[PICTURE] = truth.picture.float().contiguous()
        if truth.reconstruction is not None:
            self.tiles[f"round {number}"] = truth.reconstruction.float().contiguous()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, lambda path: save_file(self.tiles, path))
