"""The checked door for text from outside: JSON, JSON Lines and YAML files that somebody else may have written.

A file is refused with one sentence if it is not a regular file, too large, not UTF-8, not well formed, nested too
deeply, or holds what no file of this package needs: NaN, numbers beyond 64 bits, a key twice, YAML aliases and tags.
The sentence says where, and quotes next to nothing of the content. No torch in here.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from mjp.common.errors import InputError
from mjp.common.files import open_regular

MAX_BYTES = 256 * 2**20  # JSON: the captions of COCO are 90 MB
MAX_YAML_BYTES = 2**20
MAX_DEPTH = 40
INTEGERS = range(-(2**63), 2**64)


class _Refused(ValueError):
    """What is wrong with a text, without the name of the file."""


def read_json(path: Path, *, advice: str = "write it again", nan_as_null: bool = False) -> Any:
    """The content of a JSON file; `advice` ends the sentence of a refusal."""
    text = read_text(path, advice=advice)
    try:
        return parse_json(text, nan_as_null=nan_as_null)
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON ({error}): {advice}") from error


def read_object(path: Path, *, advice: str = "write it again", nan_as_null: bool = False) -> dict[str, Any]:
    """The JSON object that a file holds."""
    content = read_json(path, advice=advice, nan_as_null=nan_as_null)
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object, not {_kind(content)}: {advice}")
    return content


def read_jsonl(path: Path, *, advice: str = "remove the line", skip_damaged: bool = False) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file; a last line that a kill cut off is left out, others only on request."""
    *lines, last = read_text(path, advice=advice).split("\n")
    entries = []
    for number, line in enumerate([*lines, last], 1):
        try:
            entries += [_parse_line(path, number, line, advice)] if line else []
        except InputError:
            if not skip_damaged and line is not last:
                raise
    return entries


def read_yaml(path: Path, *, advice: str = "correct the file") -> dict[str, Any]:
    """The fields and values of a YAML file."""
    return parse_yaml(read_text(path, max_bytes=MAX_YAML_BYTES, advice=advice), str(path), advice=advice)


def read_text(path: Path, *, max_bytes: int = MAX_BYTES, advice: str = "write it again") -> str:
    """The text of a UTF-8 file of at most `max_bytes`; FileNotFoundError if there is none."""
    with open_regular(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise InputError(f"{path} is larger than {max_bytes / 2**20:g} MiB: {advice}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}): {advice}") from error


def parse_json(text: str, *, nan_as_null: bool = False) -> Any:
    """Parse JSON strictly; ValueError says what is wrong, and where."""

    def constant(name: str) -> None:
        if not nan_as_null:
            raise _Refused(f"{name} is not a JSON number")

    try:
        content = json.loads(
            text, parse_int=_integer, parse_float=_finite, parse_constant=constant, object_pairs_hook=_unique
        )
    except json.JSONDecodeError as error:
        raise _Refused(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise _Refused(f"more than {MAX_DEPTH} levels of nesting") from error
    _check_values(content)
    return content


def parse_yaml(text: str, name: str, *, advice: str = "correct the file") -> dict[str, Any]:
    """Parse YAML that must hold fields and values; `name` stands for it in messages."""
    try:
        content = yaml.load(text, _StrictLoader)  # a SafeLoader
        _check_values(content)
    except RecursionError as error:
        raise InputError(f"{name} has more than {MAX_DEPTH} levels of nesting: {advice}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{name} is not valid YAML ({_yaml_problem(error)}): {advice}") from error
    except ValueError as error:
        reason = str(error) if isinstance(error, _Refused) else "a value out of range"
        raise InputError(f"{name} is not valid YAML ({reason}): {advice}") from error
    if not isinstance(content, dict):
        raise InputError(f"{name} must hold fields and values, one per line, not {_kind(content)}: {advice}")
    return content


def _parse_line(path: Path, number: int, line: str, advice: str) -> dict[str, Any]:
    try:
        entry = parse_json(line)
    except ValueError as error:
        raise InputError(f"{path}, line {number} is not valid JSON ({error}): {advice}") from error
    if not isinstance(entry, dict):
        raise InputError(f"{path}, line {number} must hold a JSON object, not {_kind(entry)}: {advice}")
    return entry


class _StrictLoader(yaml.SafeLoader):
    """Plain values only: no aliases, which can unfold without end, and no key twice."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise _Refused(f"line {self.peek_event().start_mark.line + 1}: aliases are not supported")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Refused(f"more than {MAX_DEPTH} levels of nesting")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            raise _Refused(f"line {node.start_mark.line + 1}: a key occurs twice")
        return mapping


def _yaml_problem(error: yaml.YAMLError) -> str:
    """Where and what; PyYAML itself would print the lines around it."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or "characters that YAML does not allow"
    return place + " ".join(str(problem).split())[:80]


def _integer(digits: str) -> int:
    if len(digits) > 20 or int(digits) not in INTEGERS:
        raise _Refused(f"a whole number of {len(digits.lstrip('-'))} digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _Refused("a number that is too large")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise _Refused("a key occurs twice in an object")
    return content


def _check_values(content: Any) -> None:
    """Refuse what is neither a finite number of 64 bits, text, true, false nor null, and deep nesting."""
    level = [content]
    for _ in range(MAX_DEPTH):
        level = [child for value in level for child in _children(value)]
        if not level:
            return
    raise _Refused(f"more than {MAX_DEPTH} levels of nesting")


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value
        yield from value.values()
        if not all(isinstance(key, str) for key in value):
            raise _Refused("a key that is not text")
    else:
        _CHECKS.get(type(value), _foreign)(value)


def _check_text(value: str) -> None:
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _Refused("half a character (a lone surrogate)")


def _check_integer(value: int) -> None:
    if value not in INTEGERS:
        raise _Refused("a whole number beyond 64 bits")


def _check_float(value: float) -> None:
    if not math.isfinite(value):
        raise _Refused("a number that is not finite")


def _foreign(value: Any) -> None:
    raise _Refused(f"a value of type {type(value).__name__}: put it in quotes")


def _kind(value: Any) -> str:
    kinds = {type(None): "nothing", bool: "true or false", str: "text", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a number")


_CHECKS: dict[type, Callable[[Any], None]] = {
    str: _check_text,
    int: _check_integer,
    float: _check_float,
    bool: lambda _: None,
    type(None): lambda _: None,
}
