"""cells.jsonl: what a kill, a bad disk or another program may leave there."""

from pathlib import Path
from typing import Any

import pytest

from mjp.common.errors import InputError
from mjp.privacy.audit.cells import Cells, Key
from mjp.privacy.examine.finding import GUESS


def finding(**changes: Any) -> dict[str, Any]:
    scores = {"a": [{"psnr": 12.0, "lpips": None}]}
    return {"attack": GUESS, "refused": None, "seconds": 0.0, "facts": {}, "scores": scores, **changes}


@pytest.mark.parametrize("line", [b'{"sett', b"null", b"\xff\n"])
def test_a_torn_first_line_is_named(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "cells.jsonl").write_bytes(line)
    with pytest.raises(InputError, match="other settings"):
        Cells(tmp_path / "cells.jsonl", {})


def test_lines_that_are_no_cells_are_left_out(tmp_path: Path) -> None:
    path, key = tmp_path / "cells.jsonl", Key("m", "none", 0)
    Cells(path, {}).add(key, [finding()])
    with path.open("ab") as file:
        file.write(b'null\n7\n[1]\n{"model": "m"}\n{"model": "m\xff", "defence": "none"}\n\xff\n{"mod')
    assert list(Cells(path, {}).findings) == [key]
    Cells(path, {}).add(Key("m", "none", 1), [finding()])  # the torn end does not swallow what comes next
    assert len(Cells(path, {}).findings) == 2


DAMAGED: list[Any] = [
    7,
    [],
    [finding(attack="direct")],
    [{"attack": GUESS}],
    [finding(scores=[])],
    [finding(scores={"a": 7})],
    [finding(scores={"a": [{}]})],
    [finding(scores={"a": [{"psnr": "12"}]})],
    [finding(scores={"a": [{"psnr": float("nan")}]})],
    [finding(facts=None)],
]


@pytest.mark.parametrize("findings", DAMAGED)
def test_a_damaged_cell_is_measured_again(findings: Any, tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    Cells(path, {}).add(Key("m", "none", 0), findings)
    assert Cells(path, {}).findings == {}
