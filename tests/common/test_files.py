"""A file is written as a whole or not at all, and a failure names the file that was to be written."""

import errno
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from mjp.cli.main import main
from mjp.common.files import write_atomically

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
