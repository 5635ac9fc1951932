"""The Python interface to an index, which the commands and the page use too."""

from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from mjp.aladin.index.catalogue import Entry
from mjp.aladin.index.config import IndexConfig
from mjp.aladin.index.filters import EVERYTHING, Filter
from mjp.aladin.index.neighbours import Engine
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.model.text import unknown_words
from mjp.aladin.search.explain import Stored, Word, explain, unread_words
from mjp.aladin.search.gallery import Gallery, Stages
from mjp.aladin.search.local import LocalGallery
from mjp.aladin.search.qdrant import is_qdrant, open_qdrant
from mjp.aladin.search.request import Request, Sort, combined, read_terms
from mjp.aladin.search.two_stage import Match, encode_picture, encode_query
from mjp.common.device import pick_device
from mjp.common.errors import InputError
from mjp.common.validate import whole


class PictureSearch:
    """An open index and the model that made it.

    The index may change while it is open: every search sees its present state.
    """

    def __init__(
        self, source: Path | Gallery, model: Aladin, *, engine: Engine = "exact", max_pixels: int | None = None
    ) -> None:
        """`source`: folder of an index, or where else the codes are."""
        if max_pixels is not None:
            whole("--max-pixels", max_pixels, least=1)
        self.model = model
        self.max_pixels = max_pixels
        self._gallery: Gallery = LocalGallery(source, engine) if isinstance(source, Path) else source
        self._checked: IndexConfig | None = None
        self.gallery  # noqa: B018  refuses an index of another model

    def __len__(self) -> int:
        return len(self.gallery)

    @property
    def gallery(self) -> Gallery:
        """Where the codes of the pictures are; refused if another model made them."""
        config = self._gallery.config
        if config is not self._checked:
            config.check_model(self._model_hash, self._gallery.name)
            self._checked = config
        return self._gallery

    @cached_property
    def _model_hash(self) -> str:
        return self.model.hash

    def search(
        self,
        text: str = "",
        *,
        picture: str | Path | None = None,
        like: str | None = None,
        k: int = 10,
        offset: int = 0,
        rerank: int = 20,
        where: Filter | None = None,
        sort: Sort = "score",
    ) -> list[Match]:
        """The best k pictures, the best first.

        Args:
            text: what should be in the picture; terms may be added and taken off, as in "beach + sunset - people".
            picture: file of a picture to look for, alone or added to the text.
            like: id of a picture of the index to look for, alone or added to the text.
            k: number of matches.
            offset: number of matches to skip.
            rerank: how many of the nearest vectors to sort by the alignment score; 0 for none. With a picture or a
                minus only vectors are compared.
            where: only pictures that pass this filter; `make_filter` makes one.
            sort: "date" returns the same matches with the newest first.
        """
        file = None if picture is None else Path(picture)
        window: dict[str, Any] = {"k": k, "offset": offset, "rerank": rerank, "sort": sort}
        request = Request(text=text, picture=file, like=like, where=where or EVERYTHING, **window)
        return self.stages(request).reranked

    def stages(self, request: Request) -> Stages:
        """As `search`, with the matches by vector alone beside."""
        gallery = self.gallery
        query = self.encode(request)
        window = slice(request.offset, request.offset + request.k)
        rerank = request.rerank if request.by_words and self.model.alignment_trained else 0
        stages = gallery.stages(self.model, query, window, rerank, request.where, judge=request.by_words)
        if request.sort == "score":
            return stages
        vector, reranked = (sorted(matches, key=lambda match: -match.date) for matches in stages[:2])
        return stages._replace(vector=vector, reranked=reranked)

    def encode(self, request: Request) -> Codes:
        """The codes of a query."""
        pictures = []
        if request.picture is not None:
            ratio = self.gallery.config.mask_ratio
            pictures.append(encode_picture(ratio, self.model, request.picture, max_pixels=self.max_pixels).vector)
        if request.like is not None:
            codes = self.gallery.codes(request.like)
            if codes is None:
                raise InputError(f"{self.gallery.name} contains no picture with the id {request.like[:40]!r}")
            pictures.append(codes.vector)
        return combined(request.terms, [encode_query(self.model, term.text) for term in request.terms], pictures)

    def entry(self, picture: str) -> Entry | None:
        """Paths and date of a picture by its id; None if the index does not contain it."""
        return self.gallery.entry(picture)

    def explain(
        self, text: str, picture: str, *, decoding: AbstractContextManager[object] | None = None
    ) -> list[Word] | None:
        """What each word of a query adds to the score of a picture, and which patch answers it.

        Args:
            text: the query; of one with signs the terms to look for.
            picture: id of a picture of the index, `Match.id`.
            decoding: held while the picture's file is decoded, to limit how many are at the same time.

        Returns:
            None if the index does not contain the picture.
        """
        if not self.model.alignment_trained:
            raise InputError(f"{self.model.config.backbone} was not trained to align words with patches")
        gallery = self.gallery
        codes, entry = gallery.codes(picture), gallery.entry(picture)
        if codes is None or entry is None:
            return None
        stored = Stored(codes, entry.paths, gallery.config.mask_ratio > 0, gallery.config.grid)
        limits: dict[str, Any] = {"max_pixels": self.max_pixels, "decoding": decoding or nullcontext()}
        terms = [term.text for term in Request(text=text).terms if not term.minus]
        words = (explain(stored, self.model, term, encode_query(self.model, term), **limits) for term in terms)
        return [word for part in words for word in part]

    def notes(self, text: str) -> list[str]:
        """What a person should know about how a query was read."""
        notes = []
        if count := sum(unread_words(self.model, term.text) for term in read_terms(text)):
            notes.append(f"the query is too long: its last {count} words were not read")
        if words := unknown_words(text, self.model.piece_names):
            notes.append(f"the model does not know every letter of: {', '.join(words)}")
        return notes


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
        folder: folder of the index, or qdrant:URL/NAME for what `mjp aladin push` has sent there.
        model: folder of the model; default: the one that made the index.
        engine: "exact" compares with every vector; "ivf" and "hnsw" are approximate (mjp[faiss]), for millions.
        max_pixels: refuse pictures with more pixels; default: 100 million, or the variable MJP_MAX_PIXELS.
        device: auto, cpu, cuda, ...
    """
    gallery = open_qdrant(str(folder)) if is_qdrant(str(folder)) else LocalGallery(Path(folder), engine)
    aladin = find_aladin(str(model or gallery.config.source)).to(pick_device(device))
    return PictureSearch(gallery, aladin, max_pixels=max_pixels)
