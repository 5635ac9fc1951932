"""What people concluded from the cells of a folder: FOLDER/findings.yaml, if there is one.

findings    sentences; {ID} stands for the difference of a claim
answers     question of a doubt: sentence

They stand beside the cells and not in the scale: other cells of the same scale may say something else.
"""

import re
from pathlib import Path
from typing import Any

from mjp.common.errors import InputError, shorten
from mjp.common.read import read_yaml

NAME = "findings.yaml"


def add_findings(body: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The body of results.json with the findings of its folder, and answers to its doubts."""
    path = folder / NAME
    content = read_yaml(path) if path.is_file() else {}
    findings, answers = content.get("findings", []), content.get("answers", {})
    if not isinstance(findings, list) or not isinstance(answers, dict):
        raise InputError(
            f"{path}: findings must be a list of sentences, and answers a table of questions and sentences"
        )
    ids = {claim["id"] for claim in body["claims"]}
    for text in [*findings, *answers.values()]:
        _check(path, text, ids)
    questions = {doubt["question"] for doubt in body["doubts"]}
    if unknown := sorted(map(shorten, answers.keys() - questions)):
        raise InputError(f"{path} answers {unknown[0]}, which the scale does not ask: correct the question")
    doubts = [{**doubt, "answer": answers.get(doubt["question"], "")} for doubt in body["doubts"]]
    return {**body, "findings": findings, "doubts": doubts}


def _check(path: Path, text: Any, ids: set[str]) -> None:
    if not isinstance(text, str):
        raise InputError(f"{path}: {shorten(text)} must be a sentence")
    if unknown := sorted(map(shorten, set(re.findall(r"\{(.*?)\}", text)) - ids)):
        raise InputError(f"{path} names the claim {unknown[0]}, which the scale does not have: correct it")
