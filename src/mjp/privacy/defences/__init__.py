"""The defences, one file each with a `DEFENCE`; a new file here is a new defence everywhere.

What a defence can do, and what it must say about itself: mjp/privacy/defence.py. Modules here import torch inside their
functions only, because `--help` lists them.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from mjp.privacy.defence import Defence


@cache
def defences() -> dict[str, Defence]:
    """All defences by name, in the order of the help."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return {d.name: d for d in sorted((module.DEFENCE for module in modules), key=lambda d: (d.order, d.name))}


def defences_help() -> str:
    """One line for each defence."""
    width = max(len(defence.grammar) for defence in defences().values()) + 2
    return "\n".join(f"  {defence.grammar:<{width}}{defence.help}" for defence in defences().values())
