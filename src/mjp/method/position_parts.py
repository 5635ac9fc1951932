"""Which parts of a model tell it where a patch is: tables, rotations, biases, as timm names them.

A model is taken for one without positions only if nothing in it looks like them. So the patterns here are broad: a part
that only sounds like a position costs a refusal with its name, a part that was missed would cost a false promise.
"""

import re
from typing import Any

from torch import Tensor, nn

ROTARY = "rotary positions"
RELATIVE = "relative position biases"
CONVOLUTIONAL = "convolutions that encode positions"
ABSOLUTE = "absolute positions"

# The first pattern that matches decides. A part's class says more than its name: timm's `pos_embed` may be anything.
_PATTERNS = {
    ROTARY: re.compile(r"^(rope|rotary)|Rotary"),
    RELATIVE: re.compile(
        r"rel_?pos|relative|pos_?embed_?rel|^att(entio)?n_bias|rpe\d*$|^rel_|_rel$|rpb$", re.IGNORECASE
    ),
    CONVOLUTIONAL: re.compile(r"^pos_?(conv|block)|^cpe\d*$|^peg\d*$|(Conv|Conditional)Pos", re.IGNORECASE),
    ABSOLUTE: re.compile(r"(^|_)(pos|position|positional)(_|\d|$)|pos_?e(mb|nc)|positional|^ape$", re.IGNORECASE),
}
_EMPTY = (nn.Identity, nn.Dropout)  # what timm leaves where a model has no positions, and what follows them
_CONTAINER = re.compile("Block|Att|Layer|Stage|Transformer")  # classes whose own parts are looked at instead


def position_parts(model: nn.Module) -> dict[str, str]:
    """The outermost parts of a model that encode positions: their kinds by their full names."""
    parts: dict[str, str] = {}
    for prefix, module in model.named_modules():
        if any(prefix == name or prefix.startswith(f"{name}.") for name in parts):
            continue
        for name, part in _named_parts(module):
            kind = _kind(name, part)
            if kind is not None:
                parts[f"{prefix}.{name}" if prefix else name] = kind
    return parts


def has_overlapping_convolution(model: nn.Module) -> bool:
    """Whether the windows of any convolution overlap: behind it, patches know their neighbours."""
    return any(
        kernel > stride
        for module in model.modules()
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)
        for kernel, stride in zip(module.kernel_size, module.stride, strict=True)
    )


def described(parts: dict[str, str]) -> str:
    """The kinds among the parts, each with the first part that shows it."""
    first: dict[str, str] = {}
    for name, kind in parts.items():
        first.setdefault(kind, name)
    return " and ".join(f"{kind} ({name})" for kind, name in first.items())


def _named_parts(module: nn.Module) -> list[tuple[str, Any]]:
    """Parameters, buffers and modules directly in a module, and tensors that are neither, by name."""
    plain = [(name, value) for name, value in vars(module).items() if isinstance(value, Tensor)]
    tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    return [*tensors, *module.named_children(), *plain]


def _kind(name: str, part: Any) -> str | None:
    if isinstance(part, _EMPTY) or name.startswith("pos_drop"):
        return None
    kind = type(part).__name__
    names = [kind, name] if isinstance(part, nn.Module) and not _CONTAINER.search(kind) else [name]
    matches = (label for text in names for label, pattern in _PATTERNS.items() if pattern.search(text))
    return next(matches, None)
