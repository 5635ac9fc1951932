"""Whatever a file holds, reading it gives plain values or one sentence that quotes next to nothing of it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mjp.common.errors import InputError, shorten
from mjp.common.read import MAX_DEPTH, parse_json, parse_yaml, read_json, read_jsonl, read_object, read_text, read_yaml

SECRET = "5f8a-secret"
NONSENSE = {  # name: (content, what the sentence says)
    "empty": (b"", "JSON"),
    "half": (b'{"a": [1, 2', "line 1"),
    "bytes": (b"\xff\xfe\x00" + SECRET.encode(), "not UTF-8"),
    "deep": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nesting"),
    "deeper than allowed": (b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", "nesting"),
    "many digits": (b'{"a": ' + b"9" * 5000 + b"}", "5000 digits"),
    "65 bits": (b'{"a": 36893488147419103232}', "20 digits"),
    "nan": (b'{"a": NaN}', "NaN"),
    "infinite": (b'{"a": -Infinity}', "Infinity"),
    "overflow": (b'{"a": 1e999}', "too large"),
    "twice": (b'{"a": 1, "a": 2}', "twice"),
    "surrogate": (b'{"a": "\\ud800"}', "surrogate"),
    "long line": (b'{"a": ' + SECRET.encode() * 100_000, "line 1"),
}


def refusal(path: Path, read: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    assert SECRET not in text
    assert len(text) < len(str(path)) + 160
    return text


@pytest.mark.parametrize("name", NONSENSE)
def test_json_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    content, expected = NONSENSE[name]
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert expected in refusal(path, read_json)


@pytest.mark.parametrize("content", ["[]", "1", '"text"', "null", "true"])
def test_the_wrong_kind_of_value_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    assert "must hold a JSON object" in refusal(path, read_object)
    assert "must hold fields and values" in refusal(path, read_yaml)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f"a: 1\n  b: [{SECRET * 20}\n", "line 2"),
        (f"a: !!python/object/apply:os.system ['{SECRET}']", "line 1"),
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n", "aliases"),
        ("a: 1\na: 2\n", "line 1: a key occurs twice"),
        ("a: .nan", "not finite"),
        (f"a: {'9' * 5000}", "out of range"),
        ("a: 99999999999999999999", "64 bits"),
        ("a: 2026-01-01", "type date"),
        ("a: 2026-99-99", "out of range"),
        ("1: a", "key that is not text"),
        ("a: " + "[" * 200 + "]" * 200, "nesting"),
        ("a: " + "[" * 50_000, "nesting"),
        ("a: \x00", "YAML"),
    ],
)
def test_yaml_is_refused_in_a_sentence(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(content)
    assert expected in refusal(path, read_yaml)


def test_files_that_never_end_or_are_too_large_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"a: 1\n" * 500_000)
    for name, expected in (("pipe", "regular file"), ("zero", "regular file"), ("large", "larger than 1 MiB")):
        assert expected in refusal(tmp_path / name, read_yaml)
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "nowhere")


def test_a_torn_last_line_is_left_out_and_others_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a": ')
    assert read_jsonl(path) == [{"a": 1}, {"a": 2}]
    path.write_text('{"a": 1}\n{"a": \n\n{"a": 3}')
    assert "line 2" in refusal(path, read_jsonl)
    assert read_jsonl(path, skip_damaged=True) == [{"a": 1}, {"a": 3}]


def test_older_files_may_hold_nan(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": NaN}')
    assert read_object(tmp_path / "a.json", nan_as_null=True) == {"a": None}


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert parse_json(json.dumps(value)) == value


@given(st.text(max_size=200))
def test_any_text_gives_a_value_or_a_sentence(text: str) -> None:
    for parse in (parse_json, lambda text: parse_yaml(text, "a.yaml")):
        sentence = ""
        try:
            parse(text)
        except ValueError as error:
            sentence = str(error)
        assert "\n" not in sentence


@pytest.mark.parametrize(
    "value",
    [10**5000, "x" * 10**6, ["y" * 10**6] * 1000, {"k" * 1000: None}, 1.5],
    ids=["digits", "text", "list", "key", "number"],
)
def test_a_quoted_value_is_short(value: Any) -> None:
    assert len(shorten(value)) <= 80
