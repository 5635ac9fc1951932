"""LPIPS (Zhang et al. 2018) with AlexNet features, through the `lpips` package.

The package carries the learned linear weights but not the AlexNet, which it would download. Here the backbone comes
from a file or from torchvision's cache; if neither exists, LPIPS is "not available".

Pictures go in at their own size, so the figures are the package's. AlexNet needs 31 pixels; at CIFAR's 32 its three
deepest layers see a single position: coarse, but defined. Smaller pictures have no LPIPS, because enlarging them first
would be another metric.
"""

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.privacy.metrics import Perceptual

MIN_SIDE = 31  # pixels: 11×11 stride 4, then two poolings of 3×3
CONVOLUTIONS = (0, 3, 6, 8, 10)  # their places in torchvision's AlexNet.features


def find_lpips(path: str | Path | None = None) -> tuple[Perceptual | None, str]:
    """The metric and where its backbone comes from, or None and the reason, "not available: …". Downloads nothing.

    `path` is a file with features.0.weight … features.10.bias, as torchvision saves AlexNet; a file that is named and
    cannot be used is bad input.
    """
    try:
        import lpips
    except ImportError:
        return None, "not available: pip install 'mjp[lpips]'"
    file = _cached() if path is None else Path(path)
    if file is None:
        return None, f"not available: no alexnet-*.pth in {_cache()}, and no backbone file was named"
    network = _network(lpips, _backbone(file))

    @torch.no_grad()
    def measure(original: Tensor, reconstruction: Tensor) -> float | None:
        if min(original.shape[-2:]) < MIN_SIDE:
            return None
        pair = (picture.detach().float().cpu().unsqueeze(0) for picture in (original, reconstruction))
        return float(network(*pair, normalize=True))  # normalize: [0, 1] → [−1, 1]

    return measure, f"AlexNet from {file}"


def _cache() -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints"


def _cached() -> Path | None:
    return next(iter(sorted(_cache().glob("alexnet-*.pth"))), None)


def _backbone(file: Path) -> dict[str, Tensor]:
    """The five convolutions of an AlexNet, by the names that torchvision gives them."""
    names = [f"features.{n}.{part}" for n in CONVOLUTIONS for part in ("weight", "bias")]
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)
        return {name: weights[name].float() for name in names}
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:  # torch writes paragraphs
        raise InputError(f"the LPIPS backbone {file} cannot be read as weights: name torchvision's AlexNet") from error
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"the LPIPS backbone {file} is not an AlexNet: it needs {names[0]} … {names[-1]}") from error


def _network(lpips: Any, backbone: dict[str, Tensor]) -> Any:
    """The package's network around these convolutions."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # it first draws a random AlexNet, which must not move the global generator, and uses a retired argument
        warnings.simplefilter("ignore")
        network = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False)
    # the package cuts `features` into slices and keeps the numbers: slice2.3 is features.3
    slots = {f"features.{key.split('.', 1)[1]}": slot for key, slot in network.net.state_dict().items()}
    try:
        for name, slot in slots.items():
            slot.copy_(backbone[name])
    except RuntimeError as error:
        raise InputError(f"the LPIPS backbone is not torchvision's AlexNet: {error}") from error
    return network.eval()
