"""Tensor files from outside: read without executing anything, refused in one sentence."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from mjp.common.errors import InputError
from mjp.common.weights import read_tensors


class Harmful:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


def test_both_formats_and_checkpoints_give_tensors_by_name(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
    save_file(tensors, tmp_path / "a.safetensors")
    torch.save(tensors, tmp_path / "a.pt")
    torch.save({"model": tensors, "epoch": 3}, tmp_path / "b.pth")
    for name in ("a.safetensors", "a.pt", "b.pth"):
        content = read_tensors(tmp_path / name)
        assert content.keys() == tensors.keys()
        assert all(torch.equal(content[key], tensors[key]) for key in tensors)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"a": torch.zeros(2).to(torch.float8_e4m3fn)}, "float8_e4m3fn, which is not supported"),
        ({"a": torch.zeros(2, dtype=torch.complex64)}, "complex64"),
        ({"a": torch.zeros(2, 2).to_sparse()}, "sparse"),
        ({"a": torch.zeros(1).expand(10**9)}, "does not hold them"),
        ({"a" * 10**5: torch.zeros(1, dtype=torch.complex64)}, "complex64"),
        ({"a": Harmful()}, "damaged or holds more than tensors"),
        ({"a": "text"}, "a is not a tensor"),
        ({1: torch.zeros(1)}, "tensors by parameter name"),
        ([], "tensors by parameter name"),
        (["text"], "arr_0 is not a tensor"),
        ({}, "tensors by parameter name"),
    ],
)
def test_what_is_not_a_table_of_weights_is_refused(tmp_path: Path, content: Any, expected: str) -> None:
    path = tmp_path / "a.pt"
    torch.save(content, path)
    with pytest.raises(InputError, match=expected) as caught:
        read_tensors(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 250


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_bytes_of_any_kind_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for content in (b"", b"text", b"PK\x03\x04" + b"\0" * 50, b"\x80\x02]", b"\xff" * 8 + b"{}", b"\0" * 100):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"{name} (is|must)"):
            read_tensors(path)
    path.unlink()
    with pytest.raises(InputError, match="there is no file of weights"):
        read_tensors(path)
    os.mkfifo(path)
    with pytest.raises(InputError, match="not a regular file"):
        read_tensors(path)
