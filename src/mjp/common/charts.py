"""What every chart shares: colours, and matplotlib without a screen."""

import os
from typing import Any

COLOURS = ("#1f5fa8", "#c44e00", "#3b7d3b", "#8a3b8f", "#7a6a00", "#444444")


def pyplot() -> Any:
    """matplotlib.pyplot, which draws without a screen."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    return plt
