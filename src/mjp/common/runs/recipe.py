"""Recipes: YAML files of a command's fields, and the settings of a run that is continued. No torch in here."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from mjp.common.errors import InputError


def recipes(command: str = "train") -> list[str]:
    """The recipes of `mjp train`; those of `mjp aladin train` begin with its name."""
    found = [path.name.removesuffix(".yaml") for path in files("mjp.recipes").iterdir() if path.name.endswith("yaml")]
    return sorted(name for name in found if name.startswith("aladin_") == (command == "aladin"))


def load_recipe(name: str, command: str = "train") -> dict[str, Any]:
    """The fields of a recipe that comes with the package, or of a YAML file."""
    path, known = Path(name), recipes(command)
    if name in known:
        text = files("mjp.recipes").joinpath(f"{name}.yaml").read_text()
    elif path.suffix in (".yaml", ".yml") and path.is_file():
        text = path.read_text()
    else:
        raise InputError(f"there is no recipe {name!r}: choose one of {', '.join(known)}, or give a YAML file")
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{name} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise InputError(f"{name} must hold fields and values, one per line")
    return values


def value_of(arguments: list[str], *flags: str) -> str | None:
    """The value of an option that decides about the defaults of the others; of several the last, as tyro has it."""
    value = None
    for here, following in zip(arguments, [*arguments[1:], None], strict=False):
        if here in flags:
            value = following
        elif here.startswith(tuple(flag + "=" for flag in flags)):
            value = here.partition("=")[2]
    return value


def refuse_other_run(path: Path, now: str, free: set[str]) -> None:
    """Refuse to continue the run of the file `path` with settings `now`, both YAML, unless only `free` ones differ."""
    old, new = yaml.safe_load(path.read_text()), yaml.safe_load(now)
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name) and name not in free)
    if changed:
        raise InputError(
            f"{path.parent} holds a run with other settings ({', '.join(changed)}): give the same ones to continue it, "
            "or another --out"
        )


def plain_value(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {key: plain_value(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
