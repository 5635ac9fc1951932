"""results.json: strict JSON, written whole or not at all, read back as it was written; older files stay readable."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mjp.common.errors import InputError
from mjp.common.results import RESULTS, SCHEMA, make_results, plain, read_results, write_results


@dataclass
class Options:
    models: tuple[str, ...] = ("a",)
    out: Path = Path("some/where")
    ratio: float = math.nan


class Interval(NamedTuple):
    mean: float
    low: float


def strict(text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    body = {"models": {"a": {"top1": Interval(0.5, 0.25), "grid": (8, 8), "where": Path("x")}}}
    written = write_results(tmp_path / "new" / "folder", "eval", Options(), body)
    assert read_results(tmp_path / "new" / "folder") == written
    content = strict((tmp_path / "new" / "folder" / RESULTS).read_text())
    assert (content["schema"], content["kind"]) == (SCHEMA, "eval")
    assert content["settings"] == {"models": ["a"], "out": "some/where", "ratio": None}
    assert set(content["versions"]) == {"mjp", "torch", "timm"}
    assert content["models"] == {"a": {"top1": [0.5, 0.25], "grid": [8, 8], "where": "x"}}
    assert written.to_json() == (tmp_path / "new" / "folder" / RESULTS).read_text()


@given(st.recursive(st.floats() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_no_number_that_is_not_finite_reaches_the_file(value: Any) -> None:
    body = strict(make_results("eval", {}, {"value": value}).to_json())
    assert body["value"] == plain(value)


def test_a_value_that_is_not_json_is_our_mistake_and_leaves_the_old_file(tmp_path: Path) -> None:
    before = write_results(tmp_path, "eval", {}, {"n": 1})
    with pytest.raises(TypeError):
        write_results(tmp_path, "eval", {}, {"n": object()})
    assert read_results(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == [RESULTS]


def test_a_body_must_not_hide_the_header() -> None:
    with pytest.raises(ValueError, match="kind"):
        make_results("eval", {}, {"kind": "study"})


def test_older_files_are_read(tmp_path: Path) -> None:
    (tmp_path / RESULTS).write_text('{"kind": "eval", "settings": {"seed": 1}, "data": NaN}')
    results = read_results(tmp_path)
    assert (results.schema, results.kind, results.settings, results.body) == (0, "eval", {"seed": 1}, {"data": None})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ('{"schema": 1' + "0" * 5000 + "}", "is not valid JSON"),
        ("\xff", "is not UTF-8 text"),
        ("[1]", "must hold a JSON object"),
        ('{"kind": ["eval"]}', "'kind' is damaged"),
        ('{"kind": "eval", "settings": 3}', "'settings' is damaged"),
        ('{"kind": "eval", "schema": 99}', "newer mjp"),
    ],
)
def test_foreign_and_broken_files_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / RESULTS).write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=rf"results\.json.*{message}") as caught:
        read_results(tmp_path)
    assert len(str(caught.value)) < 400


def test_folders_that_are_missing_or_empty_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        read_results(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"there is no results.json in .*"):
        read_results(tmp_path)
