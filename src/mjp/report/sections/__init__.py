"""The sections of the page, in their order. NAME.py reads results, NAME.html beside it shows them.

A new section is these two files and its place in SECTIONS.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from mjp.report.runs import Run
from mjp.report.sections import (
    accuracy,
    attention,
    comparison,
    federated,
    leakage,
    making,
    positions,
    reproduction,
    retrieval,
    robustness,
    segmentation,
    summary,
    training,
)


class Section(Protocol):
    """A module of this folder."""

    __name__: str
    TITLE: str
    KINDS: tuple[str, ...]  # commands whose results it shows

    def gather(self, runs: Sequence[Run]) -> Any:
        """What its template gets as `content`; None leaves the section out."""


SECTIONS: tuple[Section, ...] = (
    *(summary, reproduction, training, accuracy, robustness, segmentation, positions, attention, leakage, federated),
    *(retrieval, comparison, making),
)
KINDS = tuple(dict.fromkeys(kind for section in SECTIONS for kind in section.KINDS))
