"""Where the codes of pictures are: an index on this machine, or a collection of Qdrant. Search needs no more of it."""

from typing import NamedTuple, Protocol

from mjp.aladin.index.catalogue import Entry
from mjp.aladin.index.config import IndexConfig
from mjp.aladin.index.filters import Filter
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.search.two_stage import Match


class Stages(NamedTuple):
    """The matches of a query after either stage, and how many pictures there are to match."""

    vector: list[Match]
    reranked: list[Match]
    total: int
    doubtful: bool | None = None  # whether nothing really matches; None if that was not asked or cannot be told


class Gallery(Protocol):
    """Every answer is about the present state."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def config(self) -> IndexConfig:
        """The same object as long as no vector changes."""

    def __len__(self) -> int: ...

    def stages(
        self, model: Aladin, query: Codes, window: slice, rerank: int, where: Filter, *, judge: bool = False
    ) -> Stages:
        """The matches from window.start to window.stop, by vector and with the first `rerank` sorted by alignment.

        `judge`: say whether nothing really matches, where that can be told.
        """

    def codes(self, picture: str) -> Codes | None:
        """The codes of one picture; None if it is not there."""

    def entry(self, picture: str) -> Entry | None:
        """Paths and date of one picture; None if it is not there."""
