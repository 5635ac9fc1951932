"""A cell that is damaged is refused with one sentence, before anything is written."""

import json
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from mjp.cli.main import main
from mjp.common.errors import InputError
from mjp.common.results import plain
from mjp.evaluation.robustness.metrics import ALEXNET
from mjp.reproduce.cell_file import read_cells
from mjp.reproduce.committed import HOME
from mjp.reproduce.outcomes import pack
from mjp.reproduce.scale_file import load_scale

TOY = load_scale("toy")
BITS = pack(torch.arange(100) % 3 > 0)
MISSING = object()
POINT = {"ratio": 0.5, "unknown": False, "sampler": "blockwise", "pictures": 100, "right": BITS, "same": BITS}
CELL: dict[str, Any] = {
    "run": "A",
    "seed": 0,
    "train": plain(TOY.runs["A"].train),
    "sources": {"pictures": "0123456789abcdef", "checkpoint": None},
    "figures": {
        "curve": [[1, 20.0], [2, 30.0], [3, 40]],
        "pca": [[0.1, 0.2], [0.3, 0.4]],
        "umap": [[1, 2], [3, 4]],
        "attention": [[[0.1, 0.2], [0.3, 0.4]]],
        "corruption": 0.5,
        "corruption_by_name": dict.fromkeys(ALEXNET, 0.5),
        "place_error": 0.3,
        "top1_halfway": None,
    },
    "outcomes": {"right": BITS, "pictures": 100, "points": [{**POINT, "diff_norm": 8.9, "diff_relative": 0.3}]},
    "seconds": 10,
}


def write(folder: Path, content: Any, name: str = "A-0") -> Path:
    path = folder / "cells" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def changed(place: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """The cell with another value at a place, or without what is there."""
    cell = deepcopy(CELL)
    inner: Any = cell
    for key in place[:-1]:
        inner = inner[key]
    if value is MISSING:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return cell


FIRST = ("outcomes", "points", 0)
NO_NUMBERS: list[Any] = ["0.5", [0.5], {}, True]
NO_BITS: list[Any] = [BITS[:-4], BITS + "AAAA", "", "?" + BITS, BITS + "?", "é" + BITS[1:], "bits", None, 5, [BITS]]
NO_PLANE: list[Any] = [[], {}, 5, "plane", [1, 2], [[1, 2], [3]], [[1, 2, 3]], [[1, "2"]], [[1, None]], [[1, True]]]
DAMAGES: dict[tuple[str | int, ...], list[Any]] = {
    ("run",): [MISSING, ["A"], None, 5, {}, "B", "../A"],
    ("seed",): [MISSING, 0.0, 1.5, False, "0", None, -1, 1, [0]],
    ("train",): [MISSING, [], None, "recipe"],
    ("sources",): [None, [], "pictures"],
    ("seconds",): [MISSING, "10", None, -1, True, [10]],
    ("figures",): [MISSING, None, [], "figures", 5, {}],
    ("figures", "place_error"): NO_NUMBERS,
    ("figures", "top1_halfway"): NO_NUMBERS,
    ("figures", "corruption"): [MISSING, *NO_NUMBERS],
    ("figures", "corruption_by_name"): [MISSING, None, [], {}, 0.5, {**dict.fromkeys(ALEXNET, 0.5), "rain": 0.5}],
    ("figures", "corruption_by_name", "fog"): [MISSING, None, *NO_NUMBERS],
    ("figures", "curve"): [
        MISSING,
        None,
        {},
        5,
        "curve",
        [1],
        [[1]],
        [[1, 2], [3]],
        [[1, None]],
        [[1, "2"]],
        [[1.5, 2]],
    ],
    ("figures", "pca"): [MISSING, None, *NO_PLANE, [[1, 2]]],
    ("figures", "umap"): [*NO_PLANE, [[1, 2]]],
    ("figures", "attention"): [None, [], [[1, 2]], [[[1, 2], [3]]], [[["1", "2"]]], {}, 5, [[[]]]],
    ("outcomes",): [MISSING, None, [], "outcomes", {}],
    ("outcomes", "pictures"): [MISSING, None, "100", [100], 0, 100.0, True, 96, 105],
    ("outcomes", "right"): [MISSING, *NO_BITS],
    ("outcomes", "points"): [MISSING, None, {}, "points", [None], [5], [{}], [[]]],
    (*FIRST, "ratio"): [MISSING, None, 1.5, -1, *NO_NUMBERS],
    (*FIRST, "unknown"): [MISSING, None, 1, "true"],
    (*FIRST, "sampler"): [MISSING, None, "other", ["blockwise"]],
    (*FIRST, "pictures"): [MISSING, None, "100", 50, 1000],
    (*FIRST, "right"): [MISSING, *NO_BITS],
    (*FIRST, "same"): [MISSING, *NO_BITS],
    (*FIRST, "diff_norm"): [MISSING, None, *NO_NUMBERS],
    (*FIRST, "diff_relative"): [MISSING, None, *NO_NUMBERS],
}


def cases() -> list[Any]:
    return [
        pytest.param(place, value, id=f"{'.'.join(map(str, place))}-{'missing' if value is MISSING else value!r:.30}")
        for place, values in DAMAGES.items()
        for value in values
    ]


@pytest.mark.parametrize(("place", "value"), cases())
def test_a_damaged_cell_is_refused(place: tuple[str | int, ...], value: Any, tmp_path: Path) -> None:
    path = write(tmp_path, changed(place, value))
    with pytest.raises(InputError, match=r"is not a cell of mjp reproduce \(.*\): remove it, and run") as refusal:
        read_cells(tmp_path, TOY)
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"run": "A", "run": "A"}', '{"seconds": NaN}'])
def test_what_is_not_a_json_object_is_refused(content: str, tmp_path: Path) -> None:
    path = write(tmp_path, {})
    path.write_text(content)
    with pytest.raises(InputError, match="remove it, and run the command again") as refusal:
        read_cells(tmp_path, TOY)
    assert str(refusal.value).startswith(str(path))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("figures", "curve"), []),  # a run without validation
        (("figures", "umap"), None),  # a machine without UMAP
        (("figures", "umap"), MISSING),
        (("figures", "place_error"), None),
        (("outcomes", "points"), []),
        (("sources",), MISSING),
        (("seconds",), 1.5),
    ],
)
def test_what_may_be_missing_is_no_damage(place: tuple[str | int, ...], value: Any, tmp_path: Path) -> None:
    cell = changed(place, value)
    write(tmp_path, cell)
    assert read_cells(tmp_path, TOY) == {"A": {0: cell}, "J": {}}


@pytest.mark.parametrize("name", ["A-1", "J-0", "A-00", "A", "copy of A-0"])
def test_a_file_with_the_name_of_another_cell_is_refused(name: str, tmp_path: Path) -> None:
    write(tmp_path, CELL)
    write(tmp_path, CELL, name)
    with pytest.raises(InputError, match=f"{name}.json is not a cell of mjp reproduce .it holds seed 0 of the run 'A'"):
        read_cells(tmp_path, TOY)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda cell: cell["outcomes"].update(pictures=99), r"different numbers of pictures \(99, 100\)"),
        (lambda cell: cell["outcomes"]["points"][0].update(pictures=99), r"different numbers of pictures \(99, 100\)"),
        (lambda cell: cell["figures"]["curve"].pop(), "the curves of A in .* have different epochs"),
        (lambda cell: cell["train"].update(epochs=50), "trained with other settings than the scale has now .epochs"),
    ],
)
def test_cells_that_do_not_fit_together_are_refused(
    change: Callable[[dict[str, Any]], None], sentence: str, tmp_path: Path
) -> None:
    write(tmp_path, CELL)
    other = {**deepcopy(CELL), "seed": 1}
    write(tmp_path, other, "A-1")
    assert list(read_cells(tmp_path, TOY)["A"]) == [0, 1]
    change(other)
    write(tmp_path, other, "A-1")
    with pytest.raises(InputError, match=sentence):
        read_cells(tmp_path, TOY)


def test_the_command_refuses_before_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, changed(("outcomes",), []))
    assert main(["reproduce", "toy", "--collect", "--out", str(tmp_path)]) == 2
    assert "is not a cell of mjp reproduce" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["cells"]


def test_all_committed_cells_are_read_in_no_time() -> None:
    folders = {path.parent.parent for path in HOME.glob("*/cells/*.json")}
    scales = {folder: load_scale(folder.name) for folder in folders}
    started = time.process_time()
    count = sum(len(by_seed) for folder in folders for by_seed in read_cells(folder, scales[folder]).values())
    assert count > 0
    assert time.process_time() - started < count / 100
