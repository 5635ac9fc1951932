"""What every chart shares: matplotlib without a screen, colours, a quiet frame, and a file for light and dark pages."""

import os
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from mjp.common.files import write_atomically

# of middle brightness, so that they can be told from a light and from a dark page
COLOURS = ("#2f7fd1", "#d9681d", "#3f9b4f", "#a85fb0", "#a08a1c", "#808080")
QUIET = "#8c8c8c"  # what is not data
LIGHT = {"ink": "#1d1f21", "paper": "#ffffff"}
DARK = {"ink": "#e8e6e1", "paper": "#15181b"}


def pyplot() -> Any:
    """matplotlib.pyplot, which draws without a screen."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    return plt


def tidy(*axes: Any) -> None:
    """A faint grid, and no frame above and to the right."""
    for axis in axes:
        axis.grid(color=QUIET, alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)


def save_chart(figure: Any, path: Path, *, dpi: int = 120) -> None:
    """Write a finished figure as it looks on a light page, and beside it as it looks on a dark one; then close it."""
    light, dark, _, _ = png_pair(figure, dpi=dpi)
    for target, content in ((path, light), (dark_version(path), dark)):
        write_atomically(target, partial(Path.write_bytes, data=content))


def png_pair(figure: Any, *, dpi: int = 120) -> tuple[bytes, bytes, int, int]:
    """A finished figure as PNG for a light and for a dark page, with width and height; the figure is closed."""
    files = []
    for theme in (LIGHT, DARK):
        _recolour(figure, **theme)
        file = BytesIO()
        figure.savefig(file, format="png", dpi=dpi)
        files.append(file.getvalue())
    width, height = (round(inches * dpi) for inches in figure.get_size_inches())
    pyplot().close(figure)
    return files[0], files[1], width, height


def dark_version(path: Path) -> Path:
    """sweep.png → sweep-dark.png."""
    return path.with_stem(f"{path.stem}-dark")


def _recolour(figure: Any, *, ink: str, paper: str) -> None:
    """Letters, ticks and frames in one colour, what is behind them in another; the data keep theirs."""
    from matplotlib.text import Text

    figure.set_facecolor(paper)
    for text in figure.findobj(Text):
        text.set_color(ink)
    for axis in figure.axes:
        axis.set_facecolor(paper)
        axis.tick_params(colors=ink, which="both")
        for spine in axis.spines.values():
            spine.set_edgecolor(ink)
