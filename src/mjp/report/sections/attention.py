"""Where the class token looks: the attention maps of `mjp study`."""

from collections.abc import Sequence
from typing import Any

from mjp.report.runs import Run, from_runs

TITLE = "Where the class token looks"
KINDS: tuple[str, ...] = ("study",)


def gather(runs: Sequence[Run]) -> Any:
    return [part for part in from_runs(runs, "study", _maps) if part] or None


def _maps(run: Run) -> dict[str, Any] | None:
    models = run.body["attention"]  # those that have a class token
    return {"models": models, "picture": run.picture("attention.png")} if models else None
