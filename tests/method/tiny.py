"""Tiny models, pictures and generators that the tests of the method share."""

import mjp  # isort: skip  before timm, also in processes that a test starts: it makes torchvision importable

from collections.abc import Iterable
from typing import Any

import timm
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

SMALL_VIT: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 8,
    "depth": 2,
    "embed_dim": 48,
    "num_heads": 3,
    "num_classes": 10,
}
SMALL_SWIN: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 4,
    "window_size": 4,
    "embed_dim": 24,
    "depths": (1, 1),
    "num_heads": (2, 4),
    "num_classes": 10,
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(batch: int = 4, height: int = 32, width: int | None = None, *, seed: int = 0) -> Tensor:
    return torch.randn(batch, 3, height, width or height, generator=generator(seed))


def vit(name: str = "deit_small_patch16_224", **changes: Any) -> Any:
    """A ViT of two layers on a grid of 4x4."""
    return awake(timm.create_model(name, **{**SMALL_VIT, **changes}))


def swin(name: str = "swin_tiny_patch4_window7_224", **changes: Any) -> Any:
    """A Swin on 8x8 tokens."""
    return awake(timm.create_model(name, **{**SMALL_SWIN, **changes}))


def cnn(name: str = "test_resnet") -> Any:
    return awake(timm.create_model(name, num_classes=10))


def awake(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model with noise on all its weights, so that no zero or layer scale of 1e-6 hides a difference."""
    noise = generator(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=noise), alpha=0.1)
    return model.eval()


def half_masked(batch: int = 4, grid: tuple[int, int] = (4, 4), seed: int = 0, ratio: float = 0.5) -> mjp.Plan:
    return mjp.sample_plan(batch, grid, ratio, generator=generator(seed))


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def relative_difference(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> float:
    """‖a − b‖ / ‖b‖ over all tensors together."""
    pairs = list(zip(ours, theirs, strict=True))
    difference = sum(float((a - b).double().square().sum()) for a, b in pairs)
    size = sum(float(b.double().square().sum()) for _, b in pairs)
    return (difference / size) ** 0.5


class CountOperators(TorchDispatchMode):
    """Counts what reaches the device, and refuses what makes the host wait for it."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert not name.startswith(self.WAITS), f"{name} waits for the device"
        self.count += 1
        return func(*args, **(kwargs or {}))
