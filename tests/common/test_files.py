"""A file is written as a whole or not at all, and a failure names the file that was to be written."""

import errno
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from mjp.cli.main import main
from mjp.common.charts import pyplot
from mjp.common.errors import InputError
from mjp.common.files import open_regular, sweep, write_atomically

NUMBERS = {"numbers": torch.zeros(50_000)}


def write_faiss(path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    index = faiss.IndexFlatIP(8)
    index.add(torch.zeros(5_000, 8).numpy())
    faiss.write_index(index, str(path))


WRITERS: dict[str, Callable[[Path], Any]] = {
    "text": lambda path: path.write_text("a" * 200_000),
    "safetensors": lambda path: save_file(NUMBERS, path),
    "torch": lambda path: torch.save(NUMBERS, path),
    "faiss": write_faiss,
}


@contextmanager
def little_room() -> Iterator[None]:
    """No file may grow beyond 20 kB: a disk that is full, as far as a writer can tell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("kind", WRITERS)
def test_a_full_disk_leaves_what_was_there_and_names_the_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "results.bin"
    path.write_bytes(b"before")
    with little_room(), pytest.raises(OSError, match=r"/results\.bin") as caught:
        write_atomically(path, WRITERS[kind])
    assert ".results." not in str(caught.value)  # the temporary one
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
    write_atomically(path, WRITERS[kind])
    assert path.stat().st_size > 100_000


@pytest.mark.parametrize("kind", WRITERS)
def test_a_folder_that_is_none_is_named_by_the_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").touch()
    for home in ("file", "nowhere"):
        with pytest.raises(OSError, match=rf"{home}/results\.bin") as caught:
            write_atomically(tmp_path / home / "results.bin", WRITERS[kind])
        assert ".results." not in str(caught.value)  # the temporary one


def test_the_kind_of_a_failure_is_kept(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(tmp_path / "nowhere" / "a.txt", WRITERS["text"])
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(tmp_path / "nowhere" / "a.txt"))


def test_a_mistake_of_the_writer_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    def mistaken(path: Path) -> None:
        path.write_text("half")
        raise KeyError("half")

    with pytest.raises(KeyError):
        write_atomically(tmp_path / "a.txt", mistaken)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_says_it_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with little_room():
        assert main(["jigsaw", "--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}/jigsaw.png" in line


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("kind", WRITERS)
def test_the_umask_and_the_mode_of_an_existing_file_are_respected(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.bin"
    for mask, expected in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        with umask(mask):
            write_atomically(path, WRITERS[kind])
        assert mode(path) == expected
        path.unlink()
    write_atomically(path, WRITERS[kind])
    path.chmod(0o640)
    write_atomically(path, WRITERS[kind])
    assert mode(path) == 0o640


def test_links_are_replaced_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "a.txt"
    victim.write_text("precious")
    victim.chmod(0o600)
    path.symlink_to(victim)
    with umask(0o022):
        write_atomically(path, lambda temporary: temporary.write_text("new"))
    assert (victim.read_text(), path.read_text(), path.is_symlink(), mode(path)) == ("precious", "new", False, 0o644)


def test_nobody_else_can_reach_the_temporary_file_nor_guess_its_name(tmp_path: Path) -> None:
    places: list[Path] = []

    def write(path: Path) -> None:
        places.append(path)
        assert mode(path.parent) == 0o700
        path.write_text("a")

    for _ in range(2):
        write_atomically(tmp_path / "a.txt", write)
    assert places[0].parent.parent == tmp_path
    assert places[0] != places[1]
    assert [path.name for path in places] == ["a.txt", "a.txt"]  # the ending, which some writers look at


def test_writers_that_look_at_the_ending_are_content(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.npy", lambda path: np.save(path, np.arange(3)))
    figure = pyplot().figure(figsize=(1, 1))
    write_atomically(tmp_path / "a.svg", figure.savefig)
    pyplot().close(figure)
    assert np.load(tmp_path / "a.npy").tolist() == [0, 1, 2]
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


KILLED = """
import os, sys
from pathlib import Path
from mjp.common.files import write_atomically

def die(path):
    path.write_text("half")
    print("writing", flush=True)
    sys.stdin.readline()
    os._exit(9)

write_atomically(Path(sys.argv[1]), die)
"""


def test_what_a_killed_writer_left_is_swept_and_one_at_work_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "writing\n"
    sweep(tmp_path)
    write_atomically(tmp_path / "b.txt", lambda temporary: temporary.write_text("b"))
    (left,) = (entry for entry in tmp_path.iterdir() if entry.name != "b.txt")
    assert (left / "a.txt").read_text() == "half"
    writer.communicate("\n")
    assert left.exists()
    write_atomically(tmp_path / "b.txt", lambda temporary: temporary.write_text("b"))
    assert list(tmp_path.iterdir()) == [tmp_path / "b.txt"]


def test_what_only_looks_like_a_leftover_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".a.abcdefgh.tmp").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".b.abcdefgh.tmp").write_text("a file")
    (tmp_path / "c.abcdefgh.tmp").mkdir()
    before = sorted(tmp_path.iterdir())
    sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(InputError, match=f"{path} is not a regular file"):
            open_regular(path)
