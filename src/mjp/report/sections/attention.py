"""Where the class token looks: the attention maps of `mjp study`."""

from collections.abc import Sequence
from typing import Any

from mjp.report.runs import Run, look

TITLE = "Where the class token looks"


def find(runs: Sequence[Run]) -> Any:
    return [found for found in look(runs, "study", _maps) if found] or None


def _maps(run: Run) -> dict[str, Any] | None:
    models = run.facts["attention"]  # those that have a class token
    return {"models": models, "picture": run.picture("attention.png")} if models else None
