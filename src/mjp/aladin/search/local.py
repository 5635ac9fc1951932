"""An index on this machine as search sees it, open as long as it does not change."""

from collections import OrderedDict
from pathlib import Path
from threading import RLock

import torch
from torch import Tensor

from mjp.aladin.index.catalogue import Entry
from mjp.aladin.index.config import IndexConfig
from mjp.aladin.index.filters import Filter
from mjp.aladin.index.neighbours import Engine
from mjp.aladin.index.store import Index, index_state
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.search.doubt import NEAREST, Doubt
from mjp.aladin.search.gallery import Stages
from mjp.aladin.search.two_stage import Hit, match_hits, two_stage
from mjp.common.errors import InputError

TRIES = 3  # of a search while the index is being rewritten
FILTERS = 8  # whose rows are remembered
ENTRIES = 4096  # pictures whose paths are remembered: a page asks for those of its matches again


class LocalGallery:
    """Every answer is about the present state of the folder; memory maps and filters are reused until it changes."""

    def __init__(self, folder: Path, engine: Engine = "exact") -> None:
        self.folder = folder
        self.engine: Engine = engine
        self.lock = RLock()
        self.state = index_state(folder)
        self._index = Index(folder)
        self.filtered: OrderedDict[Filter, Tensor | None] = OrderedDict()
        self.doubt: Doubt | None = None
        self.entries: OrderedDict[str, Entry] = OrderedDict()

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
                self.entries.clear()
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

    def stages(
        self, model: Aladin, query: Codes, window: slice, rerank: int, where: Filter, *, judge: bool = False
    ) -> Stages:
        for _ in range(TRIES):
            state = index_state(self.folder)
            try:
                return self._stages(model, query, window, rerank, where, judge=judge)
            except InputError:  # a writer may have rewritten a chunk meanwhile
                if index_state(self.folder) == state:
                    raise
        return self._stages(model, query, window, rerank, where, judge=judge)

    def _stages(self, model: Aladin, query: Codes, window: slice, rerank: int, where: Filter, *, judge: bool) -> Stages:
        index = self.index
        passing = self._passing(index, where)
        total = len(index) if passing is None else int(passing.sum())
        count = max(window.stop, NEAREST)
        vector, reranked = two_stage(index, model, query, count, rerank, self.engine, passing)
        shown = {hit.row: hit for hit in [*vector[window], *reranked[window]]}
        matches = dict(zip(shown, match_hits(index, list(shown.values())), strict=True))
        self._remember([Entry(match.id, match.paths, match.date) for match in matches.values()])
        return Stages(
            [matches[hit.row]._replace(alignment=hit.alignment) for hit in vector[window]],
            [matches[hit.row]._replace(alignment=hit.alignment) for hit in reranked[window]],
            total,
            self._doubt(index, model, query, vector[:NEAREST]) if judge else None,
        )

    def _doubt(self, index: Index, model: Aladin, query: Codes, hits: list[Hit]) -> bool | None:
        if not hits:
            return None
        with self.lock:
            if self.doubt is None or self.doubt.model is not model:
                self.doubt = Doubt(model)
            vectors = index.codes(torch.tensor([hit.row for hit in hits])).vector
            return self.doubt.about(query.vector[0].cpu(), vectors)

    def codes(self, picture: str) -> Codes | None:
        index = self.index
        row = index.row(picture)
        return None if row is None else index.codes(torch.tensor([row]))

    def entry(self, picture: str) -> Entry | None:
        index = self.index
        with self.lock:
            entry = self.entries.get(picture)
        if entry is None:
            row = index.row(picture)
            entry = None if row is None else index.entries([row])[0]
            self._remember([] if entry is None else [entry])
        return entry

    def _remember(self, entries: list[Entry]) -> None:
        with self.lock:
            self.entries |= {entry.id: entry for entry in entries}
            while len(self.entries) > ENTRIES:
                self.entries.popitem(last=False)

    def _passing(self, index: Index, where: Filter) -> Tensor | None:
        """(N,) the rows to search; None if these are all."""
        with self.lock:
            if where not in self.filtered:
                passing = index.passing(where)
                self.filtered[where] = None if bool(passing.all()) else passing
                while len(self.filtered) > FILTERS:
                    self.filtered.popitem(last=False)
            return self.filtered[where]
