"""Exact search is brute force, re-ranking everything is exhaustive, faiss agrees, a picture finds itself."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aladin.gallery import declared_png
from aladin.index.test_store import filled, random_codes
from aladin.tiny import noise
from mjp.aladin.index import neighbours
from mjp.aladin.index.neighbours import Engine, nearest
from mjp.aladin.index.scan import content_hash
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.aladin.search import two_stage as module
from mjp.aladin.search.two_stage import by_alignment, by_vector, encode_picture, match_hits, two_stage
from mjp.common.errors import InputError

QUERY = "a red sky over the green ground"


def vectors(*counts: int) -> np.ndarray:
    """Those of `filled`, one below the other."""
    return torch.cat([random_codes(count, 10 * seed).vector for seed, count in enumerate(counts)]).double().numpy()


@pytest.mark.parametrize("k", [1, 3, 9, 50])
def test_exact_is_brute_force(tmp_path: Path, k: int) -> None:
    index, query = filled(tmp_path, 4, 1, 4), noise(8, seed=77)
    products = vectors(4, 1, 4) @ query.double().numpy()
    found = nearest(index, query, k)
    assert found.rows.tolist() == np.argsort(-products)[:k].tolist()
    np.testing.assert_allclose(found.scores.numpy(), np.sort(products)[::-1][:k], rtol=1e-5)


def test_of_equals_the_first_indexed_comes_first(tmp_path: Path) -> None:
    index = filled(tmp_path, 3, 3)
    assert nearest(index, torch.zeros(8), 6).rows.tolist() == list(range(6))


def test_re_ranking_everything_is_the_exhaustive_search(
    model: Aladin, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, query = Index(indexed), model.encode_texts([QUERY])
    exhaustive = model.alignment(index.codes(torch.arange(len(index))), query)[:, 0]
    monkeypatch.setattr(module, "BLOCK", 3)  # whatever is read at once
    found = two_stage(index, model, query, len(index), len(index))[1]
    assert [hit.row for hit in found] == exhaustive.argsort(descending=True).tolist()
    torch.testing.assert_close(torch.tensor([hit.alignment for hit in found]), exhaustive.sort(descending=True).values)


def test_the_alignment_score_is_that_of_the_pictures_themselves(model: Aladin, indexed: Path, gallery: Path) -> None:
    from mjp.pictures.decode import open_rgb

    index, query = Index(indexed), model.encode_texts([QUERY])
    images = [model.vision.prepare(open_rgb(name.paths[0])) for name in match_hits(index, by_vector(index, query, 10))]
    fresh = model.alignment(model.encode_pictures(torch.stack(images)), query)[:, 0]
    stored = {hit.rank: hit.alignment for hit in by_alignment(index, model, query, by_vector(index, query, 10))}
    torch.testing.assert_close(torch.tensor([stored[n] for n in range(1, 11)]), fresh, atol=5e-3, rtol=0)  # float16


def test_only_the_first_are_re_ranked(model: Aladin, indexed: Path) -> None:
    index, query = Index(indexed), model.encode_texts([QUERY])
    vector, aligned = two_stage(index, model, query, 8, 3)
    assert [hit.rank for hit in vector] == list(range(1, 9))
    assert {hit.row for hit in aligned[:3]} == {hit.row for hit in vector[:3]}
    assert aligned[3:] == vector[3:]
    scores = [hit.alignment for hit in aligned]
    assert scores[:3] == sorted(scores[:3], key=lambda s: -float(s or 0))
    assert scores[3:] == [None] * 5
    alone = two_stage(index, model, query, 8, 0)[1]
    assert [hit.row for hit in alone] == [hit.row for hit in vector]
    # to the last bit only if the vectors are at the same place in memory: they were mapped before, now they are loaded
    assert [hit.cosine for hit in alone] == pytest.approx([hit.cosine for hit in vector], abs=1e-6)


def test_re_ranking_can_bring_a_picture_in_from_beyond_k(model: Aladin, indexed: Path) -> None:
    index, query = Index(indexed), model.encode_texts([QUERY])
    best = by_alignment(index, model, query, by_vector(index, query, 10))[:2]
    assert two_stage(index, model, query, 2, 10)[1] == best


@pytest.mark.parametrize("text", ["sky", "xylophone", "日本 sky", "GREEN!!", "7"])
def test_one_word_and_unknown_words_are_queries(model: Aladin, indexed: Path, text: str) -> None:
    hits = two_stage(Index(indexed), model, model.encode_texts([text]), 10, 10)[1]
    scores = [hit.alignment for hit in hits]
    assert len(scores) == 10
    assert np.isfinite(np.array(scores, dtype=float)).all()
    assert len(set(scores)) > 1


@pytest.mark.parametrize("text", ["", "?!", " – "])
def test_a_query_without_a_word_is_refused(model: Aladin, text: str) -> None:
    with pytest.raises(InputError, match="contains no word"):
        model.encode_texts([text])


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_a_picture_finds_itself(model: Aladin, gallery: Path, tmp_path: Path, ratio: float) -> None:
    from aladin.gallery import take_in

    index, _ = take_in(gallery, tmp_path / "index", model, mask_ratio=ratio)
    path = gallery / "a" / "03.png"
    (first, *_) = match_hits(index, by_vector(index, encode_picture(ratio, model, path), 3))
    assert first.id == content_hash(path)
    assert first.cosine == pytest.approx(1, abs=1e-5)


def test_a_query_that_is_no_picture_is_refused(model: Aladin, indexed: Path, tmp_path: Path) -> None:
    for name, content in (("a.png", b""), ("b.png", b"text"), ("c.png", declared_png(40_000, 40_000))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name} cannot be read"):
            encode_picture(0.0, model, tmp_path / name)
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path / "pipe.png", tmp_path):
        with pytest.raises(InputError, match="not a regular file"):
            encode_picture(0.0, model, path)
    with pytest.raises(InputError, match="there is no picture"):
        encode_picture(0.0, model, tmp_path / "nowhere.png")


def test_an_empty_index_says_so(tmp_path: Path) -> None:
    index = filled(tmp_path, 1)
    index.delete(ids=["p0"])
    with pytest.raises(InputError, match="contains no pictures"):
        nearest(index, torch.zeros(8), 1)


# faiss


def test_faiss_has_nothing_to_say_about_few_pictures(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("faiss")
    nearest(filled(tmp_path, 9), noise(8), 3, "ivf")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("engine", ["ivf", "hnsw"])
def test_faiss_agrees_with_exact_search(tmp_path: Path, engine: Engine) -> None:
    pytest.importorskip("faiss")
    index = filled(tmp_path, 20, 10)
    for seed in range(5):
        query = noise(8, seed=seed)
        exact, found = nearest(index, query, 5), nearest(index, query, 5, engine)
        assert found.rows.tolist() == exact.rows.tolist()
        torch.testing.assert_close(found.scores, exact.scores)


@pytest.mark.parametrize("engine", ["ivf", "hnsw"])
def test_faiss_finds_as_many_as_asked_for(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    index, query = filled(tmp_path, 4000), noise(8, seed=3)  # 102 inverted lists
    exact = nearest(index, query, 1000).rows.tolist()
    assert sorted(nearest(index, query, 5000, engine).rows.tolist()) == list(range(4000))
    monkeypatch.delattr(neighbours, "cosines")
    found = nearest(index, query, 1000, engine).rows.tolist()
    assert len(set(found)) == 1000
    assert len(set(found) & set(exact)) > 950


def test_what_faiss_does_not_find_is_found_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faiss = pytest.importorskip("faiss")
    index, query = filled(tmp_path, 4000), noise(8, seed=3)
    monkeypatch.setattr(neighbours, "_effort", lambda *_: faiss.SearchParametersIVF(nprobe=1))
    found, exact = nearest(index, query, 1000, "ivf"), nearest(index, query, 1000)
    assert found.rows.tolist() == exact.rows.tolist()


def test_faiss_is_built_once_and_again_after_a_change(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    index, query = filled(tmp_path, 20), noise(8, seed=3)
    best = index.id(int(nearest(index, query, 1, "hnsw").rows[0]))
    (file,) = tmp_path.glob("*.faiss")
    made = file.stat().st_mtime_ns
    nearest(index, query, 1, "hnsw")
    assert file.stat().st_mtime_ns == made
    index.delete(ids=[best])
    assert list(tmp_path.glob("*.faiss")) == []  # it held the vector that was deleted
    assert index.id(int(nearest(index, query, 1, "hnsw").rows[0])) != best


@pytest.mark.parametrize("engine", ["ivf", "hnsw"])
def test_a_folder_that_cannot_be_written_can_be_searched(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faiss = pytest.importorskip("faiss")
    index, query, build, built = filled(tmp_path, 20), noise(8, seed=3), neighbours._build, []

    def refuse(*_: object) -> None:
        raise RuntimeError("could not open for writing: Read-only file system")  # as faiss does

    def count(*arguments: Any) -> Any:
        built.append(engine)
        return build(*arguments)

    monkeypatch.setattr(faiss, "write_index", refuse)
    monkeypatch.setattr(neighbours, "_build", count)
    for opened in (index, index, Index(tmp_path)):  # the server opens the index for every query
        assert nearest(opened, query, 5, engine).rows.tolist() == nearest(index, query, 5).rows.tolist()
    assert built == [engine]
    (sentence,) = [line for line in capsys.readouterr().err.splitlines() if "cannot be stored" in line]
    assert "Read-only file system" in sentence
    assert list(tmp_path.glob("*.faiss")) == []
    best = index.id(int(nearest(index, query, 1, engine).rows[0]))
    index.delete(ids=[best])
    assert index.id(int(nearest(index, query, 1, engine).rows[0])) != best  # built again


def test_a_damaged_faiss_file_is_named(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    index = filled(tmp_path, 20)
    nearest(index, noise(8), 1, "ivf")
    (file,) = tmp_path.glob("*.faiss")
    file.write_bytes(b"nothing")
    with pytest.raises(InputError, match="delete it"):
        nearest(index, noise(8), 1, "ivf")


def test_without_faiss_the_way_to_get_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(InputError, match=r"mjp\[faiss\]"):
        nearest(filled(tmp_path, 2), noise(8), 1, "hnsw")


def test_codes_of_a_query_are_one_row(model: Aladin) -> None:
    assert isinstance(model.encode_texts([QUERY]), Codes)
    assert len(model.encode_texts([QUERY]).vector) == 1
