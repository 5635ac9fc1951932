"""mjp.aladin in Python: what the commands call, by the names that people import."""

import subprocess
import sys
from pathlib import Path

import pytest

import mjp.aladin
from aladin.gallery import make_gallery
from mjp.aladin.index.scan import content_hash
from mjp.common.errors import InputError


@pytest.fixture
def searcher(indexed: Path, retrieval_home: Path) -> mjp.aladin.PictureSearch:
    return mjp.aladin.open_index(indexed, device="cpu")


def test_every_public_name_is_there_and_documented() -> None:
    for name in mjp.aladin.__all__:
        assert getattr(mjp.aladin, name).__doc__
    assert dir(mjp.aladin) == mjp.aladin.__all__
    with pytest.raises(AttributeError, match="no attribute 'find'"):
        _ = mjp.aladin.find


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, mjp.aladin; sys.exit(any(name in sys.modules for name in ('PIL', 'timm')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_from_a_folder_to_matches(retrieval_home: Path, tmp_path: Path) -> None:
    pictures = make_gallery(tmp_path / "pictures", 4)
    report = mjp.aladin.index_pictures(
        str(pictures), str(tmp_path / "index"), model=retrieval_home / "model", workers=0, device="cpu"
    )
    assert (report.added, len(report.index)) == (4, 4)
    searcher = mjp.aladin.open_index(str(tmp_path / "index"))
    assert len(searcher) == 4
    matches = searcher.search("red sky", k=3, rerank=2)
    assert [match.alignment is None for match in matches] == [False, False, True]
    assert all(match.paths[0].is_file() for match in matches)
    words = searcher.explain("red sky", matches[0].id)
    assert words is not None
    assert [word.text for word in words] == ["red", "sky"]
    assert sum(word.score for word in words) == pytest.approx(matches[0].alignment, abs=1e-5)


def test_a_picture_finds_itself(searcher: mjp.aladin.PictureSearch, gallery: Path) -> None:
    path = gallery / "a" / "01.png"
    (match,) = searcher.search(picture=path, k=1)
    assert match.id == content_hash(path)
    assert match.alignment is None


def test_a_picture_that_is_not_in_the_index_has_no_explanation(searcher: mjp.aladin.PictureSearch) -> None:
    assert searcher.explain("red sky", "0" * 32) is None


def test_a_model_that_was_never_saved_cannot_make_an_index(
    gallery: Path, tmp_path: Path, model: mjp.aladin.Aladin
) -> None:
    home, model.home = model.home, None
    try:
        with pytest.raises(InputError, match="save the model"):
            mjp.aladin.index_pictures(gallery, tmp_path / "index", model=model)
    finally:
        model.home = home


def test_queries_that_cannot_be_answered_are_refused(searcher: mjp.aladin.PictureSearch) -> None:
    with pytest.raises(InputError, match="search with a query"):
        searcher.search()
    with pytest.raises(InputError, match="something to look for"):
        searcher.search("- sky")
    with pytest.raises(InputError, match="contains no picture with the id"):
        searcher.search(like="nothing")
    with pytest.raises(InputError, match="-k must be"):
        searcher.search("sky", k=0)
    with pytest.raises(InputError, match="--rerank must be"):
        searcher.search("sky", rerank=-1)
