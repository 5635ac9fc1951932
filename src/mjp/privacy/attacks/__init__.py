"""Attacks: what a server can make of an update. One attack is one file in this folder with

NAME, TITLE, HELP      its name on the command line, its name in a table, and its line in the help: three strings
NEEDS                  what it cannot do without, by the names of mjp/privacy/server/needs.py
run(view)              a Reconstruction; raises Refused, with the reason, on what it cannot attack
network(model)         only for an attack on a modified network: that network

`view` is all it gets: the update, the public model, and a prior (mjp/privacy/server/view.py).
"""

import ast
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Protocol

from mjp.common.errors import InputError
from mjp.common.validate import whole

if TYPE_CHECKING:
    from mjp.privacy.server.view import Reconstruction, View


class Attack(Protocol):
    """A module of this folder."""

    @property
    def NAME(self) -> str: ...
    @property
    def TITLE(self) -> str: ...
    @property
    def HELP(self) -> str: ...
    @property
    def NEEDS(self) -> Sequence[str]: ...

    def run(self, view: "View") -> "Reconstruction": ...


@cache
def attacks() -> dict[str, Attack]:
    """All attacks by name."""
    modules: list[Attack] = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return {module.NAME: module for module in modules}


def find_attack(name: str) -> Attack:
    if name not in attacks():
        raise InputError(f"there is no attack {name!r}: choose from {', '.join(attacks())}")
    return attacks()[name]


def find_attacks(names: Sequence[str]) -> list[Attack]:
    if not names:
        raise InputError("name at least one attack")
    return [find_attack(name) for name in names]


def attacks_help() -> str:
    """One line for each attack, read from the source: importing the attacks would import torch."""
    lines = {}
    for home in __path__:
        for path in sorted(Path(home).glob("[!_]*.py")):
            strings = _module_strings(path)
            lines[strings["NAME"]] = strings["HELP"]
    width = max(map(len, lines)) + 2
    return "\n".join(f"  {name:<{width}}{text}" for name, text in lines.items())


def _module_strings(path: Path) -> dict[str, str]:
    """The string constants of a module."""
    return {
        statement.targets[0].id: statement.value.value
        for statement in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    }


def check_rounds(rounds: int, attacks: Sequence[str]) -> None:
    """Several rounds are for the attack that combines them, and it needs them."""
    whole("--rounds", rounds, least=1, most=100)
    if (rounds > 1) != ("rounds" in attacks):
        raise InputError("the attack rounds needs --rounds of 2 or more, and --rounds needs that attack")
