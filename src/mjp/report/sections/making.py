"""How the results were made: the commands that reproduce them, and the versions they ran with."""

import shlex
from collections.abc import Sequence
from typing import Any

from mjp.report.runs import Run

TITLE = "How this page was made"
KINDS: tuple[str, ...] = ()
# arguments without a name
POSITIONAL = {
    "eval": "models",
    "study": "models",
    "attack": "pictures",
    "attack-update": "files",
    "reproduce": "scale",
    "aladin eval": "models",
}


def gather(runs: Sequence[Run]) -> Any:
    return [_origin(run) for run in runs]


def _origin(run: Run) -> dict[str, Any]:
    versions = {str(name): str(number) for name, number in run.results.versions.items()}
    if run.kind == "train":  # its settings are a file already
        text = shlex.join(["mjp", "train", "--recipe", str(run.folder / "config.yaml")])
    elif engine := run.body.get("engine"):  # its own program started it
        text = "\n".join([f"# started by {engine}, with", *(f"{k} = {v}" for k, v in run.settings.items())])
    else:
        text = command(run.kind, run.settings)
    return {"folder": str(run.folder), "command": text, "versions": versions}


def command(kind: str, settings: dict[str, Any]) -> str:
    """The command with every setting spelt out, for a shell, one option per line."""
    positional = POSITIONAL.get(kind, "")
    words = settings.get(positional, [])
    lines = [["mjp", *kind.split(), *(words if isinstance(words, list) else [words])]]
    for name, value in settings.items():
        option = name.replace("_", "-")
        if name == positional or value is None:
            continue
        if isinstance(value, bool):
            lines.append([f"--{option}" if value else f"--no-{option}"])
        else:
            lines.append([f"--{option}", *map(str, value if isinstance(value, list) else [value])])
    return " \\\n  ".join(map(shlex.join, lines))
