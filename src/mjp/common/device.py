"""The device that a person named, and the precision to compute in."""

from contextlib import nullcontext
from typing import Any

import torch

from mjp.common.errors import InputError

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(amp: str, device: torch.device) -> Any:
    """Mixed precision, bf16 or fp16; none changes nothing."""
    kind = AUTOCAST.get(amp)
    return nullcontext() if kind is None else torch.autocast(device.type, dtype=kind)


def pick_device(name: str, local: int = 0) -> torch.device:
    """The device of that name; auto is the GPU of this process if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda":
            if not torch.cuda.is_available():
                raise RuntimeError("this torch finds no GPU")
            device = torch.device("cuda", local if device.index is None else device.index)
            torch.cuda.set_device(device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device {name!r} is not available here ({str(error).splitlines()[0]}): choose another --device, or auto"
        ) from error
    return device
