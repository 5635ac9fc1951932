"""A checkpoint is whole or not there, the one before is kept, and nothing but a checkpoint is read."""

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mjp.common.errors import InputError
from mjp.common.runs.checkpoint import find_checkpoint, load_checkpoint, save_checkpoint


def saved(folder: Path, *steps: int) -> Path:
    for step in steps:
        save_checkpoint(folder, {"step": step, "model": {"weight": torch.full((2,), float(step))}})
    return folder


def step_in(path: Path | None) -> int:
    assert path is not None
    return load_checkpoint(path)["step"]


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    state = load_checkpoint(saved(tmp_path, 7) / "last.pt")
    assert state["step"] == 7
    assert torch.equal(state["model"]["weight"], torch.full((2,), 7.0))


def test_the_previous_one_is_kept_and_nothing_else(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3)
    assert {path.name: step_in(path) for path in tmp_path.iterdir()} == {"last.pt": 3, "previous.pt": 2}


def test_what_a_kill_left_half_written_is_cleared_away(tmp_path: Path) -> None:
    folder = tmp_path / ".fresh.pt.abcdefgh.tmp"
    folder.mkdir()
    (folder / "fresh.pt").write_bytes(b"half")
    saved(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]


def test_the_newest_is_found(tmp_path: Path) -> None:
    assert find_checkpoint(tmp_path) is None
    assert step_in(find_checkpoint(saved(tmp_path, 1, 2))) == 2


@pytest.mark.parametrize("lost", [[], ["last.pt"]], ids=["before the first rename", "between the two renames"])
def test_killed_at_the_renames_the_fresh_one_is_used(tmp_path: Path, lost: list[str]) -> None:
    saved(tmp_path, 1, 2)
    for name in lost:
        (tmp_path / name).unlink()
    (saved(tmp_path / "other", 3) / "last.pt").rename(tmp_path / "fresh.pt")
    assert step_in(find_checkpoint(tmp_path)) == 3
    assert step_in(find_checkpoint(saved(tmp_path, 4))) == 4
    assert not (tmp_path / "fresh.pt").exists()


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 1)
    happened: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(number: int) -> None:
        happened.append("sync")
        fsync(number)

    def watched_replace(source: Path, target: Path) -> None:
        happened.append(target.name)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    saved(tmp_path, 2)
    assert happened == ["sync", "fresh.pt", "sync", "previous.pt", "last.pt"]  # the file, then its name


def no_space(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def no_space_as_torch_says_it(_: Any, path: Path) -> None:
    path.write_bytes(b"the beginning of a checkpoint")
    raise RuntimeError("[enforce fail at inline_container.cc:659] . unexpected pos 64 vs 0\nmore\nlines")


@pytest.mark.parametrize("failure", [no_space, no_space_as_torch_says_it])
def test_a_full_disk_leaves_the_last_one_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Any) -> None:
    saved(tmp_path, 1, 2)
    monkeypatch.setattr(torch, "save", failure)
    with pytest.raises(InputError, match=r"no checkpoint could be written .*the last one is intact: .*last\.pt") as e:
        saved(tmp_path, 3)
    assert "\n" not in str(e.value)
    assert {path.name: step_in(path) for path in tmp_path.iterdir()} == {"last.pt": 2, "previous.pt": 1}


def test_a_full_disk_spares_the_fresh_one_of_a_killed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 1, 2)
    (tmp_path / "last.pt").rename(tmp_path / "fresh.pt")
    monkeypatch.setattr(torch, "save", no_space)
    with pytest.raises(InputError, match=r"the last one is intact: .*fresh\.pt"):
        saved(tmp_path, 3)
    assert step_in(find_checkpoint(tmp_path)) == 2


def test_a_full_disk_at_the_first_checkpoint_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "save", no_space)
    with pytest.raises(InputError, match="there is none yet"):
        saved(tmp_path, 1)


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_checkpoint(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("share", [0, 0.3, 0.99])
def test_a_truncated_checkpoint_is_refused_and_the_previous_one_offered(tmp_path: Path, share: float) -> None:
    last = saved(tmp_path, 1, 2) / "last.pt"
    content = last.read_bytes()
    last.write_bytes(content[: int(share * len(content))])
    assert f"--resume {tmp_path / 'previous.pt'}" in refused(last)
    assert step_in(tmp_path / "previous.pt") == 1


def test_without_a_previous_one_none_is_offered(tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(b"")
    assert "--resume" not in refused(tmp_path / "last.pt")


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    assert "there is no checkpoint" in refused(tmp_path / "nowhere.pt")


@pytest.mark.parametrize("content", [{"weight": torch.ones(2)}, torch.ones(2), {"format": "other"}])
def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "other.pt")
    assert "not a checkpoint of mjp train" in refused(tmp_path / "other.pt")


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    torch.save({"format": "mjp-training-2", "model": Evil(tmp_path / "mark")}, tmp_path / "evil.pt")
    refused(tmp_path / "evil.pt")
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil(tmp_path / "mark")))
    refused(tmp_path / "evil.pt")
    assert not (tmp_path / "mark").exists()


@given(st.one_of(st.binary(max_size=60), st.binary(max_size=20).map(lambda end: b"\x80\x02" + end)))
def test_foreign_bytes_are_refused_whatever_they_are(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("foreign") / "last.pt"
    path.write_bytes(content)
    refused(path)
