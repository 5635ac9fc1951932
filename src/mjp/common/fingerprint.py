"""What tells the weights of one model from those of another, whatever file or folder they came from."""

import hashlib

import torch
from torch import Tensor

from mjp.common.weights import EXTRA_STATE


def fingerprint(weights: dict[str, Tensor], *more: str) -> str:
    """A short hash of names, shapes and values; what torch keeps beside the weights (`_extra_state`) does not count."""
    digest = hashlib.sha256()
    for name in sorted(name for name in weights if not name.endswith(EXTRA_STATE)):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    for text in more:
        digest.update(text.encode())
    return digest.hexdigest()[:16]
