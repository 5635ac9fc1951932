"""Attacks: what a server can make of an update. One attack is one file in this folder with

NAME, TITLE            how people call it, and how a table does
run(view)              a Reconstruction; refuses (view.require, Refused) what it cannot do, saying why
network(model)         only if it attacks another network than the unmodified one: that network

`view` is all it gets: the update, the public model, and a prior (privacy/view.py).
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Protocol

from mjp.common.errors import InputError
from mjp.privacy.server.view import Reconstruction, View


class Attack(Protocol):
    """A module of this folder."""

    NAME: str
    TITLE: str

    def run(self, view: View) -> Reconstruction: ...


@cache
def attacks() -> dict[str, Attack]:
    """All attacks by name."""
    modules: list[Attack] = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    return {module.NAME: module for module in modules}


def find_attack(name: str) -> Attack:
    if name not in attacks():
        raise InputError(f"there is no attack {name!r}: choose from {', '.join(attacks())}")
    return attacks()[name]
