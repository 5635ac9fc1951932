"""What happened to every picture, kept small: bits for right and unchanged answers, so that runs can be compared
picture by picture long after their models are gone.

    {"top1": bits, "points": [{"ratio": .5, "unknown": true, "sampler": "blockwise", "right": bits, "same": bits,
     "diff_norm": 8.9, "diff_relative": .3}, ...], "pictures": 5000, "draws": 1}

With several draws a picture has one bit for each, one draw after the other.
"""

import base64
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mjp.evaluation.sweep import JigsawView, compare_views
from mjp.method.model import MJP


def pack(bits: Tensor) -> str:
    """Booleans as text."""
    return base64.b64encode(np.packbits(bits.flatten().numpy())).decode()


def unpack(text: str, count: int) -> NDArray[np.bool_]:
    """The first `count` booleans of a text."""
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=count).astype(bool)
