"""Make torchvision importable beside a CPU build of torch.

The published torchvision binary is linked against CUDA libraries. Next to a CPU torch its extension does not load, its
two detection operators are never declared, and `import torchvision` (hence timm) dies on their missing schemas.
Declaring them first is enough: transforms, data sets and timm work; only torchvision.ops and its decoders do not.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_library: Any = None  # torch forgets the schemas when the Library object goes, so it is kept here


def declare_missing_operators() -> None:
    """Declare torchvision's `nms` and `qnms` if its own extension cannot."""
    global _library
    spec = importlib.util.find_spec("torchvision")  # finds it without importing it
    if _library is not None or spec is None or spec.origin is None:
        return
    import torch

    try:
        for extension in Path(spec.origin).parent.glob("_C*.so"):
            torch.ops.load_library(str(extension))
    except OSError:
        _library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            _library.define(name + _SCHEMA)


class _BeforeTorchvision(MetaPathFinder):
    """Runs once, just before torchvision is first imported: `import mjp` itself must not pay for importing torch."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            declare_missing_operators()
        return None  # the ordinary finders go on from here


def install() -> None:
    if "torchvision" not in sys.modules:
        sys.meta_path.insert(0, _BeforeTorchvision())
