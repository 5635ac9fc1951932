"""The Python interface to an index, which the commands and the page use too."""

from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from mjp.aladin.index.neighbours import Engine
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.model.text import unknown_words
from mjp.aladin.search.explain import Word, explain, unread_words
from mjp.aladin.search.two_stage import Match, encode_picture, encode_query, match_hits, two_stage
from mjp.common.device import pick_device
from mjp.common.errors import InputError
from mjp.common.validate import whole


class Stages(NamedTuple):
    """The matches of a query after either stage."""

    vector: list[Match]
    reranked: list[Match]


class PictureSearch:
    """An open index and the model that made it.

    The index may change while it is open: every search sees its present state.
    """

    def __init__(self, folder: Path, model: Aladin, *, engine: Engine = "exact", max_pixels: int | None = None) -> None:
        if max_pixels is not None:
            whole("--max-pixels", max_pixels, least=1)
        self.folder = folder
        self.model = model
        self.engine: Engine = engine
        self.max_pixels = max_pixels
        self._index = Index(folder)
        self._index.config.check_model(self._model_hash, folder)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def index(self) -> Index:
        """The index as it is now. Memory maps are reused as long as no vector has changed."""
        index = Index(self.folder)
        index.config.check_model(self._model_hash, self.folder)
        if index.stamp != self._index.stamp:
            self._index = index
        return self._index

    @cached_property
    def _model_hash(self) -> str:
        return self.model.hash

    def search(
        self, text: str | None = None, *, picture: str | Path | None = None, k: int = 10, rerank: int = 20
    ) -> list[Match]:
        """The best k pictures for a text or for a picture, the best first.

        Args:
            text: what should be in the picture.
            picture: file of a picture to find similar ones; only vectors are compared.
            k: number of matches.
            rerank: how many of the nearest vectors to sort by the alignment score; 0 for none.
        """
        return self.stages(text, picture=picture, k=k, rerank=rerank).reranked

    def stages(
        self, text: str | None = None, *, picture: str | Path | None = None, k: int = 10, rerank: int = 20
    ) -> Stages:
        """As `search`, with the matches by vector alone beside."""
        check_query(text, picture, k=k, rerank=rerank)
        index = self.index
        query = self._encode(index, text, picture)
        rerank = rerank if picture is None else 0
        vector, reranked = two_stage(index, self.model, query, k, rerank, self.engine)
        return Stages(match_hits(index, vector), match_hits(index, reranked))

    def explain(
        self, text: str, picture: str, *, decoding: AbstractContextManager[object] | None = None
    ) -> list[Word] | None:
        """What each word of a query adds to the score of a picture, and which patch answers it.

        Args:
            text: the query.
            picture: id of a picture of the index, `Match.id`.
            decoding: held while the picture's file is decoded, to limit how many are at the same time.

        Returns:
            None if the index does not contain the picture.
        """
        index = self.index
        row = index.row(picture)
        if row is None:
            return None
        query = encode_query(self.model, text)
        limits = {"max_pixels": self.max_pixels, "decoding": decoding or nullcontext()}
        return explain(index, self.model, text, query, row, **limits)  # type: ignore[arg-type]

    def notes(self, text: str) -> list[str]:
        """What a person should know about how a query was read."""
        notes = []
        if count := unread_words(self.model, text):
            notes.append(f"the query is too long: its last {count} words were not read")
        if words := unknown_words(text, self.model.piece_names):
            notes.append(f"the model does not know every letter of: {', '.join(words)}")
        return notes

    def _encode(self, index: Index, text: str | None, picture: str | Path | None) -> Codes:
        if picture is not None:
            return encode_picture(index, self.model, Path(picture), max_pixels=self.max_pixels)
        return encode_query(self.model, text or "")


def check_query(text: str | None, picture: str | Path | None, *, k: int, rerank: int) -> None:
    """Refuse a query that cannot be answered, before anything is opened."""
    whole("-k", k, least=1)
    whole("--rerank", rerank)
    if (not text) == (picture is None):
        raise InputError("search with a query in words or a picture (--picture): one of them, not both")


def open_index(
    folder: str | Path,
    *,
    model: str | Path | None = None,
    engine: Engine = "exact",
    max_pixels: int | None = None,
    device: str = "auto",
) -> PictureSearch:
    """Open an index for searching.

    Args:
        folder: folder of the index.
        model: folder of the model; default: the one that made the index.
        engine: "exact" compares with every vector; "ivf" and "hnsw" are approximate (mjp[faiss]), for millions.
        max_pixels: refuse pictures with more pixels; default: 100 million, or the variable MJP_MAX_PIXELS.
        device: auto, cpu, cuda, ...
    """
    source = Index(Path(folder)).config.source
    aladin = find_aladin(str(model or source)).to(pick_device(device))
    return PictureSearch(Path(folder), aladin, engine=engine, max_pixels=max_pixels)
