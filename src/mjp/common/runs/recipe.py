"""Recipes: YAML files of a command's fields, and the settings of a run that is continued. No torch in here."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from mjp.common.errors import InputError, shorten
from mjp.common.read import parse_yaml, read_yaml

# What may differ between a run and its continuation without changing the result; a command may have more of its own.
FREE_TO_CHANGE = frozenset(
    {"recipe", "out", "resume", "device", "workers", "checkpoint_minutes", "log_every", "stop_after", "max_unreadable"}
)
# What a run may be continued with after a step that was not finite, as its message advises.
FREE_AFTER_BAD_STEP = frozenset({"lr", "warmup_epochs", "clip_grad"})


def recipes(command: str = "train") -> list[str]:
    """The recipes of `mjp train`; those of `mjp aladin train` begin with its name."""
    names = [path.name.removesuffix(".yaml") for path in files("mjp.recipes").iterdir() if path.name.endswith("yaml")]
    return sorted(name for name in names if name.startswith("aladin_") == (command == "aladin"))


def load_recipe(name: str, command: str = "train") -> dict[str, Any]:
    """The fields of a recipe that comes with the package, or of a YAML file."""
    path, names = Path(name), recipes(command)
    if name in names:
        return parse_yaml(files("mjp.recipes").joinpath(f"{name}.yaml").read_text(encoding="utf-8"), name)
    if path.suffix in (".yaml", ".yml") and path.exists():
        return read_yaml(path)
    raise InputError(f"there is no recipe {shorten(name)}: choose one of {', '.join(names)}, or give a YAML file")


def value_of(arguments: list[str], *flags: str) -> str | None:
    """The value of an option that decides about the defaults of the others; of several the last, as tyro has it."""
    value = None
    for here, following in zip(arguments, [*arguments[1:], None], strict=False):
        if here in flags:
            value = following
        elif here.startswith(tuple(flag + "=" for flag in flags)):
            value = here.partition("=")[2]
    return value


def changed_settings(path: Path, now: str, free: frozenset[str]) -> dict[str, tuple[Any, Any]]:
    """Where the settings `now` differ from those in the file `path`, both YAML: (before, now).

    A setting that the file does not name is newer than the run, which went without it.
    """
    old, new = read_yaml(path, advice="give another --out"), parse_yaml(now, "the settings")
    newer = {name for name in new.keys() - old.keys() if not new[name]}
    names = sorted((old.keys() | new.keys()) - free - newer)
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def plain_value(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {key: plain_value(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
