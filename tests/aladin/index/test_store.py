"""The folder on disk: what goes in comes out, nothing is lost by a kill, what is deleted is gone."""

import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import mjp.aladin.index.store as module
from aladin.gallery import draw_picture, make_gallery, take_in
from aladin.tiny import noise
from mjp.aladin.index import chunks, intake
from mjp.aladin.index.catalogue import File
from mjp.aladin.index.chunks import chunk_path
from mjp.aladin.index.config import IndexConfig
from mjp.aladin.index.encode import PictureEncoder
from mjp.aladin.index.scan import content_hash
from mjp.aladin.index.stats import index_stats, stats_text
from mjp.aladin.index.store import Index, open_or_create
from mjp.aladin.model.aladin import Aladin, Codes
from mjp.aladin.search.two_stage import Hit, match_hits
from mjp.common.errors import InputError
from mjp.method.config import variant
from mjp.pictures.decode import open_rgb
from processes import exit_code, start

CONFIG = IndexConfig("hash", "somewhere", 0.0, (2, 3))


def random_codes(count: int, seed: int = 0) -> Codes:
    everywhere = torch.ones(count, 6, dtype=torch.bool)
    return Codes(noise(count, 8, seed=seed), noise(count, 6, 4, seed=seed + 1), everywhere, ~everywhere)


def filled(folder: Path, *counts: int) -> Index:
    """An index of chunks of random codes; pictures p0, p1, … at paths of the same names."""
    index, first = open_or_create(folder, CONFIG), 0
    for seed, count in enumerate(counts):
        names = [f"p{first + n}" for n in range(count)]
        index.add(names, random_codes(count, 10 * seed), [File(Path("/", n), n, None, 1, 1) for n in names])
        first += count
    return index


def ids(index: Index) -> list[str]:
    return [index.id(row) for row in range(len(index))]


def test_what_goes_in_comes_out(model: Aladin, indexed: Path, gallery: Path) -> None:
    index = Index(indexed)
    paths = sorted(gallery.rglob("*.png"))
    assert sorted(ids(index)) == sorted(content_hash(path) for path in paths)
    for path in paths:
        image = model.vision.prepare(open_rgb(path)).unsqueeze(0)
        row = index.row(content_hash(path))
        assert row is not None
        stored, fresh = index.codes(torch.tensor([row])), model.encode_pictures(image)
        torch.testing.assert_close(stored.vector, fresh.vector, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(stored.tokens, fresh.tokens, atol=1e-3, rtol=0)
        assert index.catalogue.paths(index.id(row)) == [path.resolve()]


def test_vectors_are_float32_tokens_float16_and_both_memory_mapped(indexed: Path) -> None:
    (chunk,) = Index(indexed).chunks
    assert (chunk.vector.dtype, chunk.tokens.dtype) == (torch.float32, torch.float16)
    maps = Path("/proc/self/maps")
    if maps.is_file():
        assert str(indexed.resolve()) in maps.read_text()


def test_rows_come_in_the_order_in_which_they_are_asked_for(tmp_path: Path) -> None:
    index = filled(tmp_path / "index", 3, 2, 4)
    everything = torch.cat([random_codes(count, 10 * seed).vector for seed, count in enumerate((3, 2, 4))])
    rows = torch.tensor([8, 0, 4, 3, 2, 0])
    assert torch.equal(index.codes(rows).vector, everything[rows])
    assert ids(index) == [f"p{n}" for n in range(9)]
    assert [index.row(f"p{n}") for n in range(9)] == list(range(9))
    assert index.row("p9") is None


def test_another_model_or_ratio_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    with pytest.raises(InputError, match=r"another model \(hash, from somewhere; this one is other\)"):
        open_or_create(tmp_path, IndexConfig("other", "", 0.0, (2, 3)))
    with pytest.raises(InputError, match=r"--mask-ratio 0, not 0.5"):
        open_or_create(tmp_path, IndexConfig("hash", "", 0.5, (2, 3)))


def test_a_folder_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    with pytest.raises(InputError, match="is not an index"):
        open_or_create(tmp_path, CONFIG)
    with pytest.raises(InputError, match="mjp aladin index"):
        Index(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["diary.txt"]


def test_what_is_deleted_is_gone_from_the_disk(tmp_path: Path) -> None:
    index = filled(tmp_path, 3, 2)
    vector = index.chunks[0].vector[1].numpy().tobytes()
    assert any(vector in path.read_bytes() for path in tmp_path.iterdir())
    kept = {name: index.codes(torch.tensor([index.row(name)])).vector for name in ("p0", "p2", "p3")}
    index.delete(ids=["p1"])
    assert sorted(ids(index)) == ["p0", "p2", "p3", "p4"]
    for content in (path.read_bytes() for path in tmp_path.iterdir()):
        assert vector not in content
        assert b"/p1" not in content
    for name, before in kept.items():
        assert torch.equal(index.codes(torch.tensor([index.row(name)])).vector, before)


def test_a_picture_at_two_paths_stays_until_both_are_deleted(tmp_path: Path) -> None:
    index = filled(tmp_path, 2)
    index.add([], None, [File(Path("/copy"), "p0", None, 1, 1)])
    index.delete(paths=[Path("/p0")])
    assert index.catalogue.paths("p0") == [Path("/copy")]
    index.delete(paths=[Path("/copy")])
    assert ids(index) == ["p1"]


def test_the_last_picture_can_be_deleted(tmp_path: Path) -> None:
    index = filled(tmp_path, 1)
    index.delete(ids=["p0"])
    assert len(index) == len(Index(tmp_path)) == 0
    assert list(tmp_path.glob("*chunk*")) == []


def test_small_chunks_become_one_and_large_ones_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 6)
    index = filled(tmp_path, 5, 2, 2, 1, 3)
    before = {name: index.codes(torch.tensor([index.row(name)])).tokens for name in ids(index)}
    with index.writing():
        pass
    assert Counter(count for _, count in index.layout) == {5: 2, 3: 1}
    assert len(list(tmp_path.glob("chunk-*"))) == 3
    for name, tokens in before.items():
        assert torch.equal(index.codes(torch.tensor([index.row(name)])).tokens, tokens)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    index = filled(tmp_path, 2)
    with index.writing(), pytest.raises(InputError, match="another process"), Index(tmp_path).writing():
        pass
    with index.writing():  # the lock has gone with its holder
        pass


def test_a_reader_keeps_what_it_opened_while_the_index_changes(tmp_path: Path) -> None:
    reader = filled(tmp_path, 3)
    vectors = reader.chunks[0].vector
    Index(tmp_path).delete(ids=["p0"])
    assert torch.equal(vectors, random_codes(3).vector)
    with pytest.raises(InputError, match="open it again"):
        reader.id(0)


@pytest.mark.parametrize("damage", ["index.json", "catalogue.sqlite", "chunk-000001.safetensors"])
@pytest.mark.parametrize("content", [None, b"", b"{}" * 600, b"[" * 99_999, b"\xff" * 999])
def test_damage_is_named(tmp_path: Path, damage: str, content: bytes | None) -> None:
    filled(tmp_path, 3)
    if content is None:
        (tmp_path / damage).unlink()
    else:
        (tmp_path / damage).write_bytes(content)
    with pytest.raises(InputError, match=damage if content is not None else tmp_path.name) as refusal:
        _ = Index(tmp_path).codes(torch.tensor([0]))
    assert len(str(refusal.value)) < 250 + 2 * len(str(tmp_path))  # nothing of the content


@pytest.mark.parametrize(
    "change",
    [
        *({"grid": grid} for grid in (7, [7], ["a", "b"], [0, 0], None)),
        *({"mask_ratio": ratio} for ratio in ("much", 7, None)),
        *({"model": None}, {"source": 3}, {"created": []}, {"another": 1}),
    ],
)
def test_an_index_json_with_nonsense_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    filled(tmp_path, 1)
    content = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps(content | change))
    with pytest.raises(InputError, match=r"index\.json does not describe an index"):
        Index(tmp_path)


def test_an_index_of_the_first_version_is_refused_with_a_sentence(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    content = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps(content | {"format": "mjp-aladin-index-1"}))
    with pytest.raises(InputError, match=r"was made by mjp 0\.1\.0, .*: index the pictures again, into a new folder"):
        Index(tmp_path)


def read_everything(folder: Path) -> None:
    Index(folder).damaged_chunks()
    Index(folder).catalogue.files()
    match_hits(Index(folder), [Hit(0, 1, 0.5)])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE chunks SET count = 'many'",
        "UPDATE chunks SET count = -1",
        "UPDATE pictures SET row = 'first'",
        "UPDATE pictures SET id = 7.5 || x'ff'",
        "UPDATE files SET path = 'text'",
        "UPDATE files SET bytes = 'many'",
        "DROP TABLE files",
    ],
)
def test_catalogue_rows_with_nonsense_are_refused(tmp_path: Path, statement: str) -> None:
    index = filled(tmp_path, 1)
    with closing(sqlite3.connect(index.catalogue.path)) as db, db:
        db.execute(statement)
    with pytest.raises(InputError, match=r"catalogue\.sqlite is .*damaged"):
        read_everything(tmp_path)


def test_deleted_content_is_overwritten_whatever_sqlite_was_compiled_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def careless(*arguments: Any, **settings: Any) -> sqlite3.Connection:
        db = connect(*arguments, **settings)
        db.execute("PRAGMA secure_delete = OFF")  # the default of a plain build
        return db

    monkeypatch.setattr(sqlite3, "connect", careless)
    index = filled(tmp_path, 1)
    with index.catalogue.transaction() as db:
        assert db.execute("PRAGMA secure_delete").fetchone() == (1,)


# damaged chunks


def rewrite_chunk(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "text": lambda path: path.write_bytes(b"not a chunk" * 99),
    "rows": lambda path: rewrite_chunk(path, lambda t: t.update({name: value[:2] for name, value in t.items()})),
    "width": lambda path: rewrite_chunk(path, lambda t: t.update(tokens=t["tokens"][..., :5].contiguous())),
    "not finite": lambda path: rewrite_chunk(path, lambda t: t["vector"].__setitem__((0, 0), torch.nan)),
    "types": lambda path: rewrite_chunk(path, lambda t: t.update(vector=t["vector"].double())),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_chunk_is_reported_and_its_pictures_are_encoded_again(
    model: Aladin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 4)  # several chunks
    pictures = make_gallery(tmp_path / "pictures", 6)
    monkeypatch.setattr(intake, "COMMIT_PICTURES", 3)
    index, _ = take_in(pictures, tmp_path / "index", model)
    before = {name: index.codes(torch.tensor([index.row(name)])).vector for name in ids(index)}
    assert len(index.layout) == 2
    DAMAGE[kind](chunk_path(index.folder, index.layout[1][0]))
    assert len(Index(index.folder).damaged_chunks()) == 1
    stats = index_stats(Index(index.folder))
    assert list(stats["damaged"]) == [chunk_path(index.folder, index.layout[1][0]).name]
    assert "repair: mjp aladin index" in stats_text(index, stats)
    index, report = take_in(pictures, tmp_path / "index", model)
    assert (len(report.repaired), report.added, report.unchanged, len(index)) == (1, 3, 3, 6)
    assert Index(index.folder).damaged_chunks() == {}
    for name, vector in before.items():
        torch.testing.assert_close(index.codes(torch.tensor([index.row(name)])).vector, vector, atol=1e-6, rtol=1e-5)
    _, report = take_in(pictures, tmp_path / "index", model)
    assert (report.repaired, report.added, report.unchanged) == ({}, 0, 6)


def test_the_chunk_of_another_index_is_foreign_although_it_has_the_same_shape(model: Aladin, tmp_path: Path) -> None:
    first, _ = take_in(make_gallery(tmp_path / "first", 3), tmp_path / "one", model)
    for number in range(3):
        draw_picture(tmp_path / "second" / f"{number}.png", 50 + number)
    second, _ = take_in(tmp_path / "second", tmp_path / "two", model)
    shutil.copy(next(second.folder.glob("chunk-*")), next(first.folder.glob("chunk-*")))
    assert list(Index(first.folder).damaged_chunks().values()) == ["it belongs to other pictures or another model"]
    index, report = take_in(tmp_path / "first", tmp_path / "one", model)
    assert (report.added, len(index), index.damaged_chunks()) == (3, 3, {})


def test_pictures_of_another_folder_are_encoded_again_too_and_those_that_have_gone_are_named(
    model: Aladin, tmp_path: Path
) -> None:
    one, two = make_gallery(tmp_path / "one", 2), tmp_path / "two"
    for number in range(3):
        draw_picture(two / f"{number}.png", 60 + number)
    take_in(one, tmp_path / "index", model)
    index, _ = take_in(two, tmp_path / "index", model)
    (two / "0.png").unlink()
    next(index.folder.glob("chunk-*")).unlink()
    index, report = take_in(one, tmp_path / "index", model)
    assert (report.added, len(index)) == (4, 4)
    assert [(file.path.name, file.problem) for file in report.unreadable] == [("0.png", "there is no such file")]
    assert index_stats(index)["files_without_codes"] == 1


def test_a_kill_while_an_index_is_repaired_loses_nothing(model: Aladin, tmp_path: Path) -> None:
    pictures = make_gallery(tmp_path / "pictures", 3)
    index, _ = take_in(pictures, tmp_path / "index", model)
    with index.writing():
        index.drop_chunks([number for number, _ in index.layout])  # and then the process is gone
    index, report = take_in(pictures, tmp_path / "index", model)
    assert (report.added, len(index)) == (3, 3)


# a kill

STEPS = ("chunk", "transaction")


def die(pictures: Path, out: Path, home: Path, step: str) -> None:
    """Index four pictures at a time, and be gone at the second chunk: when its file is there, or just before."""
    intake.COMMIT_PICTURES = 4
    written, really = [], chunks.write_atomically

    def deadly(path: Path, write: Any) -> None:
        written.append(path)
        deadly_chunk = len([p for p in written if "chunk" in p.name]) == 2
        if deadly_chunk and step == "chunk":
            folder = path.with_name(f".{path.name}.abcdefgh.tmp")  # what a killed writer leaves
            folder.mkdir()
            (folder / path.name).write_bytes(b"half")
            os._exit(9)
        really(path, write)
        if deadly_chunk:
            os._exit(9)

    chunks.write_atomically = deadly
    take_in(pictures, out, Aladin.load(home / "model"))


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_loses_no_more_than_a_chunk(
    retrieval_home: Path, gallery: Path, model: Aladin, indexed: Path, tmp_path: Path, step: str
) -> None:
    out = tmp_path / "index"
    assert exit_code(start(die, gallery, out, retrieval_home, step)) == 9
    left = Index(out)
    assert len(left) == 4  # readable at once
    assert len(list(out.glob("*chunk*"))) == 2  # and something incomplete beside
    index, seen = take_in(gallery, out, model)
    assert (seen.added, seen.unchanged, len(index)) == (6, 4, 10)
    assert len(list(out.glob("*chunk*"))) == len(index.layout)
    whole = Index(indexed)
    for name in ids(whole):
        a, b = (each.codes(torch.tensor([each.row(name)])) for each in (index, whole))
        torch.testing.assert_close(a.vector, b.vector, atol=1e-6, rtol=1e-5)


def test_a_kill_in_the_middle_of_a_commit_is_taken_back_by_whoever_reads_first(tmp_path: Path) -> None:
    index = filled(tmp_path / "index", 3)
    with closing(sqlite3.connect(index.catalogue.path, isolation_level=None)) as db:
        db.execute("PRAGMA cache_size = 1")  # changes reach the file before the commit
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO files VALUES (?, 'p0', NULL, 1, 1, NULL, 1)", [(b"%d" % n,) for n in range(2000)])
        shutil.copytree(index.folder, tmp_path / "killed")  # without the lock of the process: as a kill leaves it
        db.execute("ROLLBACK")
    assert (tmp_path / "killed" / "catalogue.sqlite-journal").stat().st_size
    left = Index(tmp_path / "killed")
    assert (len(left), len(left.catalogue.files())) == (3, 3)
    left.delete(ids=["p0"])
    assert ids(left) == ["p1", "p2"]


def test_a_deletion_takes_effect_at_once_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(tmp_path, 3)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Index, "_rewrite", killed)
    with pytest.raises(KeyboardInterrupt):
        index.delete([Path("/p1")])
    left = Index(tmp_path)
    assert len(left.catalogue.files()) == len(left) == 3
    assert left.catalogue.without_file() == []


def test_a_beginning_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    for path in tmp_path.iterdir():
        if path.name != "catalogue.sqlite":
            path.unlink()
    assert len(open_or_create(tmp_path, CONFIG)) == 0


def test_facts_are_readable_by_people(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    facts = json.loads((tmp_path / "index.json").read_text())
    assert (facts["model"], facts["grid"], facts["mask_ratio"]) == ("hash", [2, 3], 0.0)


# under E_unk


def test_the_entry_does_not_depend_on_the_order_of_hidden_patches(
    model: Aladin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mjp as package

    pictures = make_gallery(tmp_path / "pictures", 4)
    plan = PictureEncoder.plan

    def otherwise(self: PictureEncoder, images: torch.Tensor, names: list[str]) -> package.Plan:
        own = plan(self, images, names)
        other = package.plan_from_mask(own.mask, own.grid, generator=torch.Generator().manual_seed(99))
        assert not torch.equal(own.permutation, other.permutation)
        return other

    first, _ = take_in(pictures, tmp_path / "one", model, mask_ratio=0.75)
    monkeypatch.setattr(PictureEncoder, "plan", otherwise)
    second, _ = take_in(pictures, tmp_path / "two", model, mask_ratio=0.75)
    one, two = (index.codes(torch.arange(4)) for index in (first, second))
    assert (one.vector - two.vector).abs().max() <= 1e-5
    torch.testing.assert_close(one.tokens, two.tokens, atol=1e-3, rtol=0)  # the same order, to the precision of float16
    assert torch.equal(one.unknown, two.unknown)
    assert one.unknown.sum(1).tolist() == [12] * 4  # ⌊.75 · 16⌋


def test_the_same_picture_gets_the_same_entry_whenever_it_is_indexed(model: Aladin, tmp_path: Path) -> None:
    pictures = make_gallery(tmp_path / "pictures", 3)
    whole, _ = take_in(pictures, tmp_path / "whole", model, mask_ratio=0.5)
    shutil.move(tmp_path / "pictures" / "b" / "02.png", tmp_path / "02.png")
    grown, _ = take_in(pictures, tmp_path / "grown", model, mask_ratio=0.5)
    shutil.move(tmp_path / "02.png", tmp_path / "pictures" / "b" / "02.png")
    grown, seen = take_in(pictures, tmp_path / "grown", model, mask_ratio=0.5)
    assert seen.added == 1
    for name in ids(whole):
        a, b = (each.codes(torch.tensor([each.row(name)])) for each in (whole, grown))
        assert torch.equal(a.unknown, b.unknown)
        torch.testing.assert_close(a.vector, b.vector, atol=1e-5, rtol=0)


def test_a_backbone_without_e_unk_refuses_a_mask_ratio(
    model: Aladin, tmp_path: Path, gallery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.vision.model, "config", variant("E"))
    with pytest.raises(InputError, match="E_unk"):
        take_in(gallery, tmp_path / "index", model, mask_ratio=0.5)
    assert not (tmp_path / "index").exists()


def test_a_ratio_must_be_one(model: Aladin, tmp_path: Path, gallery: Path) -> None:
    with pytest.raises(InputError, match="--mask-ratio"):
        take_in(gallery, tmp_path / "index", model, mask_ratio=1.5)


def test_draw_picture_draws_different_pictures(tmp_path: Path) -> None:
    draw_picture(tmp_path / "a.png", 1)
    draw_picture(tmp_path / "b.png", 2)
    assert content_hash(tmp_path / "a.png") != content_hash(tmp_path / "b.png")
