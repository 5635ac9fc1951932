"""The sections of the page, in their order. NAME.py finds the facts, NAME.html beside it shows them."""

from collections.abc import Sequence
from typing import Any, Protocol

from mjp.report.runs import Run
from mjp.report.sections import (
    accuracy,
    attention,
    comparison,
    leakage,
    making,
    positions,
    retrieval,
    robustness,
    summary,
)


class Section(Protocol):
    """A module of this folder."""

    __name__: str
    TITLE: str

    def find(self, runs: Sequence[Run]) -> Any:
        """What its template gets as `found`; None leaves the section out."""


SECTIONS: tuple[Section, ...] = (
    *(summary, accuracy, robustness, positions, attention, leakage, retrieval, comparison, making),
)
