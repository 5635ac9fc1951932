"""results.json: the one place that writes and reads what a command measured.

    {
      "schema": 1,
      "kind": "eval",                the command, without `mjp`
      "settings": {...},             its options
      "versions": {...},             of mjp, torch and timm
      ...                            the body: what this kind of command found, docs/results-json.md names its keys
    }

The file is strict JSON: paths are text, and a number that is not finite is null. Files without `schema` were written
before schema 1 and differ from it in nothing else.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.common.read import read_object

RESULTS = "results.json"
SCHEMA = 1
HEADER = ("schema", "kind", "settings", "versions")
AGAIN = "run the command that wrote it again"


@dataclass(frozen=True)
class Results:
    """What a command measured, and what it takes to measure it again."""

    kind: str
    settings: dict[str, Any]
    body: dict[str, Any]
    versions: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def models(self) -> dict[str, Any]:
        """The models by name, for the kinds that compare models."""
        return self.body.get("models", {})

    def to_json(self) -> str:
        header = {"schema": self.schema, "kind": self.kind, "settings": self.settings, "versions": self.versions}
        return json.dumps({**header, **self.body}, indent=2, allow_nan=False) + "\n"


def make_results(kind: str, options: Any, body: Mapping[str, Any]) -> Results:
    """The results of a command: its name, its options (a dataclass or a dictionary) and what it found."""
    if reserved := body.keys() & set(HEADER):
        raise ValueError(f"the body of {kind} results must not hold {', '.join(sorted(reserved))}")
    versions = {name: version(name) for name in ("mjp", "torch", "timm")}
    return Results(kind, plain(options), plain(body), versions)


def write_results(folder: Path, kind: str, options: Any, body: Mapping[str, Any]) -> Results:
    """Write results.json to a folder, which is created if need be; a failure leaves the file that was there."""
    results = make_results(kind, options, body)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / RESULTS, lambda path: path.write_text(results.to_json(), encoding="utf-8"))
    return results


def read_results(folder: Path) -> Results:
    """Read results.json from a folder. A file that does not name its command has the kind ""."""
    path = folder / RESULTS
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: name a folder that an mjp command wrote")
    try:
        content = read_object(path, advice=AGAIN, nan_as_null=True)  # older files may hold NaN
    except FileNotFoundError as error:
        raise InputError(f"there is no {RESULTS} in {folder}: name a folder that an mjp command wrote") from error
    header = {"schema": 0, "kind": "", "settings": {}, "versions": {}}  # defaults for older files
    for name, default in header.items():
        if not isinstance(content.setdefault(name, default), type(default)):
            raise InputError(f"{path}: {name!r} is damaged: {AGAIN}")
    if content["schema"] > SCHEMA:
        raise InputError(f"{path} was written by a newer mjp (schema {content['schema']}): update this one to read it")
    fields = {name: content.pop(name) for name in header}
    return Results(body=content, **fields)


def plain(value: Any) -> Any:
    """The value as strict JSON has it: dictionaries, lists, text, finite numbers and null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value  # anything else that is not JSON is a mistake of ours, and json.dumps says so
