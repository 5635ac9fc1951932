"""An index on this machine as search sees it, open as long as it does not change."""

from collections import OrderedDict
from pathlib import Path
from threading import RLock
from typing import NamedTuple

import torch
from torch import Tensor

from mjp.aladin.index.catalogue import Entry
from mjp.aladin.index.config import IndexConfig
from mjp.aladin.index.filters import Filter
from mjp.aladin.index.neighbours import Engine
from mjp.aladin.index.store import Index, index_state
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.search.two_stage import Hit, Match, match_hits, two_stage

FILTERS = 8  # whose rows are remembered


class Stages(NamedTuple):
    """The matches of a query after either stage, and how many pictures there are to match."""

    vector: list[Match]
    reranked: list[Match]
    total: int


class LocalGallery:
    """Every answer is about the present state of the folder; memory maps and filters are reused until it changes."""

    def __init__(self, folder: Path, engine: Engine = "exact") -> None:
        self.folder = folder
        self.engine: Engine = engine
        self.lock = RLock()
        self.state = index_state(folder)
        self._index = Index(folder)
        self.filtered: OrderedDict[Filter, Tensor] = OrderedDict()

    @property
    def index(self) -> Index:
        """The index as it is now."""
        with self.lock:
            state = index_state(self.folder)
            if state is None or state != self.state:
                index = Index(self.folder)
                if index.stamp != self._index.stamp or index.config != self._index.config:
                    self._index = index
                self.filtered.clear()
                self.state = state
            return self._index

    @property
    def name(self) -> str:
        return str(self.folder)

    @property
    def config(self) -> IndexConfig:
        return self.index.config

    def __len__(self) -> int:
        return len(self.index)

    def stages(self, model: Aladin, query: Codes, window: slice, rerank: int, where: Filter) -> Stages:
        """The matches from window.start to window.stop, by vector and with the first `rerank` sorted by alignment."""
        index = self.index
        passing = self._passing(index, where) if where else None
        total = len(index) if passing is None else int(passing.sum())
        vector, reranked = two_stage(index, model, query, window.stop, rerank, self.engine, passing)
        shown = {hit.row: hit for hit in [*vector[window], *reranked[window]]}
        matches = dict(zip(shown, match_hits(index, list(shown.values())), strict=True))
        return Stages(*([_scored(matches[hit.row], hit) for hit in hits[window]] for hits in (vector, reranked)), total)

    def codes(self, picture: str) -> Codes | None:
        """The codes of one picture; None if it is not in the index."""
        index = self.index
        row = index.row(picture)
        return None if row is None else index.codes(torch.tensor([row]))

    def entry(self, picture: str) -> Entry | None:
        """Paths and date of one picture; None if it is not in the index."""
        index = self.index
        row = index.row(picture)
        return None if row is None else index.entries([row])[0]

    def _passing(self, index: Index, where: Filter) -> Tensor:
        with self.lock:
            if where not in self.filtered:
                self.filtered[where] = index.passing(where)
                while len(self.filtered) > FILTERS:
                    self.filtered.popitem(last=False)
            return self.filtered[where]


def _scored(match: Match, hit: Hit) -> Match:
    return match._replace(alignment=hit.alignment)
