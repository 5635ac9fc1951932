"""How the results came about: the commands that give them again, and the versions they ran with."""

import shlex
from collections.abc import Sequence
from typing import Any

from mjp.report.runs import KINDS, Run, look

TITLE = "How this page was made"
# arguments without a name
POSITIONAL = {
    "eval": "models",
    "study": "models",
    "attack": "pictures",
    "attack-update": "file",
    "aladin eval": "models",
}


def find(runs: Sequence[Run]) -> Any:
    return [made for kind in KINDS for made in look(runs, kind, _made)]


def _made(run: Run) -> dict[str, Any]:
    versions = {str(name): str(number) for name, number in run.facts["versions"].items()}
    return {"folder": str(run.folder), "command": command(run.kind, run.facts["settings"]), "versions": versions}


def command(kind: str, settings: dict[str, Any]) -> str:
    """The command with every setting spelt out, for a shell, one option to a line."""
    positional = POSITIONAL.get(kind, "")
    words = settings.get(positional, [])
    lines = [["mjp", *kind.split(), *(words if isinstance(words, list) else [words])]]
    for name, value in settings.items():
        option = name.replace("_", "-")
        if name == positional or value is None or value == []:
            continue
        if isinstance(value, bool):
            lines.append([f"--{option}" if value else f"--no-{option}"])
        else:
            lines.append([f"--{option}", *map(str, value if isinstance(value, list) else [value])])
    return " \\\n  ".join(map(shlex.join, lines))
