"""A collection answers as the index that was pushed: same order, same scores, same filters, and deletes arrive."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from qdrant_client import QdrantClient

from aladin.gallery import draw_picture, make_gallery, take_in
from mjp.aladin.index.filters import Filter, make_filter
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.search import push as push_module
from mjp.aladin.search import qdrant
from mjp.aladin.search.push import push_index
from mjp.aladin.search.qdrant import path_text, read_address, text_path
from mjp.aladin.search.searcher import PictureSearch, open_index
from mjp.cli.main import main
from mjp.common.errors import InputError

ADDRESS = "qdrant:http://nowhere.invalid:6333/pictures"
QUERIES = ("sky", "a red sky over the green ground", "blue ground + sky", "sky - red")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> QdrantClient:
    """The client's local mode in place of a server."""
    local = QdrantClient(":memory:")
    monkeypatch.setattr(qdrant, "connect", lambda url: local)
    monkeypatch.setattr(push_module, "connect", lambda url: local)
    return local


@pytest.fixture
def home(model: Aladin, tmp_path: Path) -> Path:
    for day, path in enumerate(sorted(make_gallery(tmp_path / "pictures", 10).rglob("*.png"))):
        os.utime(path, (86400 * day + 0.25, 86400 * day + 0.25))
    take_in(tmp_path / "pictures", tmp_path / "index", model)
    return tmp_path


def both(home: Path, model: Aladin) -> tuple[PictureSearch, PictureSearch]:
    return PictureSearch(home / "index", model), PictureSearch(qdrant.open_qdrant(ADDRESS), model)


@pytest.mark.parametrize("rerank", [0, 4, 20])
def test_matches_and_scores_are_those_of_the_index(
    client: QdrantClient, home: Path, model: Aladin, rerank: int
) -> None:
    assert push_index(home / "index", ADDRESS, batch=3).sent == 10
    local, remote = both(home, model)
    assert len(remote) == len(local) == 10
    for query in QUERIES:
        for offset in (0, 3):
            expected = local.search(query, k=6, offset=offset, rerank=rerank)
            matches = remote.search(query, k=6, offset=offset, rerank=rerank)
            assert [match[:4] for match in matches] == [match[:4] for match in expected]  # id, paths, date, rank
            assert [m.cosine for m in matches] == pytest.approx([m.cosine for m in expected], abs=1e-5)
            assert [m.alignment for m in matches] == [
                None if m.alignment is None else pytest.approx(m.alignment, abs=1e-5) for m in expected
            ]


def test_similar_pictures_and_explanations_come_from_the_collection(
    client: QdrantClient, home: Path, model: Aladin
) -> None:
    push_index(home / "index", ADDRESS)
    local, remote = both(home, model)
    name = local.search("sky", k=1)[0].id
    assert [m.id for m in remote.search(like=name)] == [m.id for m in local.search(like=name)]
    expected, words = local.explain("red sky", name), remote.explain("red sky", name)
    assert expected is not None
    assert words is not None
    for a, b in zip(expected, words, strict=True):
        assert (a.text, a.patch) == (b.text, b.patch)
        assert b.score == pytest.approx(a.score, abs=1e-5)
    assert remote.explain("red sky", "0" * 32) is None
    assert remote.entry("../etc/passwd") is None


def test_filters_are_those_of_the_index(client: QdrantClient, home: Path, model: Aladin) -> None:
    push_index(home / "index", ADDRESS)
    local, remote = both(home, model)
    dates = sorted(match.date for match in local.search("sky", k=10))
    filters = [
        make_filter(folder=home / "pictures" / "a"),
        make_filter(folder=home / "pictures" / "a" / "01.png"),
        make_filter(folder=home / "nowhere"),
        Filter(since=dates[3] // 10**9 * 10**9),
        Filter(until=dates[3] // 10**9 * 10**9),
        make_filter(since="1970-01-03", until="1970-01-05"),
        make_filter(added_since="1d"),
        make_filter(since="2100"),
    ]
    counts = []
    for where in filters:
        expected = [match.id for match in local.search("sky", k=10, where=where)]
        assert [match.id for match in remote.search("sky", k=10, where=where)] == expected
        counts.append(len(expected))
    assert counts[:3] == [5, 1, 0]
    assert counts[3:] == [7, 3, 3, 10, 0]


def test_a_push_that_was_killed_early_still_gets_its_payload_indexes(
    client: QdrantClient, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: list[str] = []

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "create_payload_index", killed)
    with pytest.raises(KeyboardInterrupt):
        push_index(home / "index", ADDRESS)
    monkeypatch.setattr(client, "create_payload_index", lambda name, field, kind: fields.append(field))
    assert push_index(home / "index", ADDRESS).sent == 10
    assert fields == ["folders", "date", "added"]


def test_a_picture_without_a_file_is_not_sent(client: QdrantClient, home: Path, model: Aladin) -> None:
    index = Index(home / "index")
    gone = index.id(4)
    with index.catalogue.transaction() as db:  # as while a changed picture is indexed again
        db.execute("DELETE FROM files WHERE id = ?", (gone,))
    assert push_index(home / "index", ADDRESS, batch=3).sent == 9
    local, remote = both(home, model)
    assert [m.id for m in remote.search("sky")] == [m.id for m in local.search("sky")]
    assert remote.entry(gone) is None


def test_a_push_sends_what_is_new_and_deletes_what_is_gone(client: QdrantClient, home: Path, model: Aladin) -> None:
    push_index(home / "index", ADDRESS)
    index = Index(home / "index")
    gone = index.id(0)
    index.delete(ids=[gone])
    draw_picture(home / "pictures" / "new.png", 77)
    shutil.copy(home / "pictures/b/02.png", home / "pictures/copy.png")  # another path of the same content
    take_in(home / "pictures", home / "index", model)
    Index(home / "index").delete(ids=[gone])
    report = push_index(home / "index", ADDRESS)
    assert (report.sent, report.updated, report.unchanged, report.deleted) == (1, 1, 8, 1)
    local, remote = both(home, model)
    assert [m[:3] for m in remote.search("sky", k=20)] == [m[:3] for m in local.search("sky", k=20)]
    assert remote.entry(gone) is None


def test_an_interrupted_push_goes_on(client: QdrantClient, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upsert, calls = client.upsert, []

    def failing(*arguments: Any, **settings: Any) -> Any:
        calls.append(len(settings["points"]))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return upsert(*arguments, **settings)

    monkeypatch.setattr(client, "upsert", failing)
    with pytest.raises(KeyboardInterrupt):
        push_index(home / "index", ADDRESS, batch=2)
    report = push_index(home / "index", ADDRESS, batch=2)
    assert (report.sent, report.unchanged) == (6, 4)


def test_hidden_positions_stay_hidden(client: QdrantClient, model: Aladin, gallery: Path, tmp_path: Path) -> None:
    index, _ = take_in(gallery, tmp_path / "index", model, mask_ratio=0.5)
    push_index(tmp_path / "index", ADDRESS)
    codes = qdrant.open_qdrant(ADDRESS).codes(index.id(3))
    assert codes is not None
    assert torch.equal(codes.unknown, index.codes(torch.tensor([3])).unknown)
    assert push_index(tmp_path / "index", ADDRESS).unchanged == 10


@pytest.mark.parametrize("mode", ["sym", "MwSr"])
def test_what_is_not_maxsim_is_refused_with_the_reason(
    client: QdrantClient, home: Path, model: Aladin, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_index(home / "index", ADDRESS)
    _, remote = both(home, model)
    monkeypatch.setattr(push_module, "find_aladin", lambda name: model)
    object.__setattr__(model.config, "alignment", mode)
    try:
        for ask in (lambda: push_index(home / "index", ADDRESS), lambda: remote.search("sky")):
            with pytest.raises(InputError, match="best word of every patch"):
                ask()
    finally:
        object.__setattr__(model.config, "alignment", "MrSw")


def test_a_mean_over_words_is_a_maxsim_of_shorter_words(client: QdrantClient, home: Path, model: Aladin) -> None:
    push_index(home / "index", ADDRESS)
    local, remote = both(home, model)
    object.__setattr__(model.config, "alignment", "MrAVGw")
    try:
        expected, matches = (search.search("red sky", k=5) for search in (local, remote))
    finally:
        object.__setattr__(model.config, "alignment", "MrSw")
    assert [m.alignment for m in matches] == pytest.approx([m.alignment for m in expected], abs=1e-5)


def test_mistakes_get_a_sentence(client: QdrantClient, home: Path, model: Aladin) -> None:
    for text in (
        "qdrant:nowhere",
        "qdrant:http://",
        "qdrant:http://host:6333",
        "qdrant:ftp://host/a",
        "http://host/a b",
    ):
        with pytest.raises(InputError, match="is not an address of Qdrant"):
            read_address(text)
    with pytest.raises(InputError, match="has no collection pictures"):
        open_index(ADDRESS)
    from qdrant_client import models

    client.create_collection("pictures", vectors_config=models.VectorParams(size=4, distance=models.Distance.DOT))
    with pytest.raises(InputError, match="was not made by mjp aladin push"):
        open_index(ADDRESS)


def test_a_collection_of_another_model_is_refused(client: QdrantClient, home: Path, model: Aladin) -> None:
    push_index(home / "index", ADDRESS)
    text = (home / "index" / "index.json").read_text()
    (home / "index" / "index.json").write_text(text.replace(model.hash, "0" * 16))
    with pytest.raises(InputError, match="another model"):
        push_index(home / "index", ADDRESS)


def test_a_server_that_does_not_answer_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["aladin", "push", str(home / "index"), "--to", "qdrant:http://127.0.0.1:1/pictures"]) == 2
    error = capsys.readouterr().err
    assert "Qdrant at http://127.0.0.1:1 does not answer" in error
    assert len(error.strip().splitlines()) == 1


def test_paths_that_are_not_text_come_back() -> None:
    for path in (Path("/a/b.png"), Path("/ä/日本.png"), Path(b"/a/\xff\xfe.png".decode(errors="surrogateescape"))):
        assert text_path(path_text(path)) == path
        path_text(path).encode()


def test_without_the_package_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "qdrant_client", None)
    with pytest.raises(InputError, match=r"mjp\[qdrant\]"):
        open_index(ADDRESS)
