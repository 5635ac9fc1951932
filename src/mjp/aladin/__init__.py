"""ALADIN: find pictures with words. An alignment score of words and patches, and one vector distilled from it.

    from mjp.aladin import index_pictures, open_index

    index_pictures("~/Pictures", "pictures.index")
    for match in open_index("pictures.index").search("a dog on a beach", k=5):
        print(match.cosine, match.paths[0])

Names load on first use, so that importing the package stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mjp.aladin.index.filters import Filter as Filter
    from mjp.aladin.index.filters import make_filter as make_filter
    from mjp.aladin.index.intake import index_pictures as index_pictures
    from mjp.aladin.index.report import IndexReport as IndexReport
    from mjp.aladin.model.aladin import Aladin as Aladin
    from mjp.aladin.search.explain import Word as Word
    from mjp.aladin.search.searcher import PictureSearch as PictureSearch
    from mjp.aladin.search.searcher import open_index as open_index
    from mjp.aladin.search.two_stage import Match as Match

_HOME = {
    "Aladin": "mjp.aladin.model.aladin",
    "Filter": "mjp.aladin.index.filters",
    "IndexReport": "mjp.aladin.index.report",
    "Match": "mjp.aladin.search.two_stage",
    "PictureSearch": "mjp.aladin.search.searcher",
    "Word": "mjp.aladin.search.explain",
    "index_pictures": "mjp.aladin.index.intake",
    "make_filter": "mjp.aladin.index.filters",
    "open_index": "mjp.aladin.search.searcher",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mjp.aladin' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
