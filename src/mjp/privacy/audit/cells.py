"""cells.jsonl: the finished cells of an audit, line by line, so that it can be killed and resumed.

The first line holds the settings; then comes one line with the weights of each model, and one for each finished
(model, defence, batch) with the findings of all attacks.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mjp.common.errors import InputError
from mjp.common.files import open_regular, write_atomically
from mjp.common.read import parse_json
from mjp.common.results import plain
from mjp.privacy.examine.finding import GUESS

Findings = list[dict[str, Any]]  # of one update: the guess, then every attack, as Finding.to_dict gives them


@dataclass(frozen=True)
class Key:
    model: str
    defence: str
    batch: int


class Cells:
    """The file of finished cells, and its content."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self.findings: dict[Key, Findings] = {}
        self.weights: dict[str, str] = {}
        content = _content(path)
        lines = [_read(line) for line in content.splitlines()]
        if not lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"settings": settings}) + "\n"
            write_atomically(path, lambda temporary: temporary.write_text(text))
        elif difference := _difference(lines[0].get("settings"), settings):
            raise InputError(
                f"{path} belongs to an audit with other settings ({difference}): choose another --out, or remove it"
            )
        for line in lines[1:]:
            self._take(line)
        if content and not content.endswith(b"\n"):
            self._append("\n")

    def _take(self, line: dict[str, Any]) -> None:
        match line:
            case {"model": str(model), "weights": str(weights)}:
                self.weights[model] = weights
            case {"model": str(model), "defence": str(defence), "batch": int(batch), "findings": findings}:
                if _are_findings(findings):
                    self.findings[Key(model, defence, batch)] = findings

    def _append(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def expect(self, model: str, weights: str) -> None:
        """Refuse to continue with a model whose weights (a hash of them) are not those of the finished cells."""
        recorded = self.weights.get(model)
        if recorded is None:
            self.weights[model] = weights
            self._append(json.dumps({"model": model, "weights": weights}) + "\n")
        elif recorded != weights:
            raise InputError(
                f"{self.path} holds findings on {model} with other weights: choose another --out, or remove it"
            )

    def add(self, key: Key, findings: Findings) -> None:
        cell = {"model": key.model, "defence": key.defence, "batch": key.batch, "findings": findings}
        self._append(json.dumps(plain(cell)) + "\n")
        self.findings[key] = findings


def _content(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _read(line: bytes) -> dict[str, Any]:
    """A line of the file; empty, if a kill or a bad disk damaged it."""
    try:
        content = parse_json(line.decode(), nan_as_null=True)
    except ValueError:  # not JSON, or not UTF-8
        return {}
    return content if isinstance(content, dict) else {}


def _are_findings(content: Any) -> bool:
    """Whether a cell has what the summary reads; one that has not is measured again."""
    if not isinstance(content, list) or not all(map(_is_finding, content)):
        return False
    return GUESS in {finding["attack"] for finding in content}


def _is_finding(content: Any) -> bool:
    match content:
        case {"attack": str(), "refused": str() | None, "facts": dict(), "seconds": int() | float(), "scores": scores}:
            return isinstance(scores, dict) and all(map(_are_scores, scores.values()))
    return False


def _are_scores(scores: Any) -> bool:
    return isinstance(scores, list) and all(
        isinstance(score, dict)
        and isinstance(score.get("psnr"), int | float)
        and all(value is None or isinstance(value, int | float) for value in score.values())
        for score in scores
    )


def _difference(recorded: Any, settings: dict[str, Any]) -> str:
    """The names of the settings that differ; empty if none does."""
    if not isinstance(recorded, dict):
        return "its first line is damaged"
    expected = json.loads(json.dumps(settings))
    names = expected.keys() | recorded.keys()
    return ", ".join(sorted(name for name in names if expected.get(name) != recorded.get(name)))
