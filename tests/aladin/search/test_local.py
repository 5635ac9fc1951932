"""A search while the index changes, and after a writer was killed."""

from pathlib import Path

import pytest

import mjp.aladin.search.local as module
from aladin.gallery import draw_picture, make_gallery, take_in
from mjp.aladin.index.duplicates import duplicate_groups
from mjp.aladin.index.intake import index_pictures
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.search.searcher import PictureSearch
from mjp.common.errors import InputError


@pytest.fixture
def interrupted(model: Aladin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of four pictures, one of which has changed, whose writer was killed before it dropped the old one."""
    pictures = make_gallery(tmp_path / "pictures", 4)
    take_in(pictures, tmp_path / "index", model)
    draw_picture(pictures / "b" / "00.png", 50)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Index, "_tidy", killed)
        with pytest.raises(KeyboardInterrupt):
            index_pictures(pictures, tmp_path / "index", model=model, workers=0, device="cpu")
    return tmp_path / "index"


def test_a_changed_picture_is_found_by_its_new_content_alone(model: Aladin, interrupted: Path) -> None:
    index, searcher = Index(interrupted), PictureSearch(interrupted, model)
    ((chunk, row),) = index.catalogue.without_file()
    old = index.catalogue.at(chunk, row)
    assert old is not None
    matches = searcher.search("sky", k=10)
    assert sorted(path.name for match in matches for path in match.paths) == ["00.png", "01.png", "02.png", "03.png"]
    assert old not in {match.id for match in matches}
    assert searcher.entry(old) is None
    assert old not in {entry.id for group in duplicate_groups(index, 0.0) for entry in group.pictures}
    index_pictures(interrupted.parent / "pictures", interrupted, model=model, workers=0, device="cpu")
    assert len(searcher) == 4
    assert Index(interrupted).catalogue.without_file() == []


def test_a_search_is_repeated_if_the_index_changes_meanwhile(
    model: Aladin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = make_gallery(tmp_path / "pictures", 6)
    take_in(pictures, tmp_path / "index", model)
    searcher, really = PictureSearch(tmp_path / "index", model), module.match_hits
    searcher.search("sky", k=2)
    gone = searcher.search("red", k=6)[0]

    def late(index: Index, hits: list[module.Hit]) -> object:
        monkeypatch.setattr(module, "match_hits", really)
        Index(tmp_path / "index").delete(ids=[gone.id])  # its chunk is rewritten after the rows were chosen
        return really(index, hits)

    monkeypatch.setattr(module, "match_hits", late)
    assert len(searcher.search("red", k=6)) == 5


def test_a_failure_that_no_change_explains_is_told(
    model: Aladin, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def broken(*_: object) -> None:
        calls.append(1)
        raise InputError("broken")

    monkeypatch.setattr(module, "match_hits", broken)
    with pytest.raises(InputError, match="broken"):
        PictureSearch(indexed, model).search("sky")
    assert len(calls) == 1
