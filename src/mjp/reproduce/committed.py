"""The results of `mjp reproduce` that come with the package: one folder per scale, with its cells."""

from importlib.resources import files
from pathlib import Path

HOME = Path(str(files("mjp").joinpath("shipped", "reproduction")))


def committed_results() -> list[Path]:
    """The folders of the scales that have results."""
    return sorted(path.parent for path in HOME.glob("*/results.json"))
