"""Model families: how a plan enters a timm model. One family is one file in this folder with

ADAPTER     a class that answers the questions of mjp.method.adapter.Adapter
EXAMPLE     timm's name and arguments of a small model for 32x32 pictures: tests/method/test_adapters.py checks the
            promises of adapters on it

Nothing else has to be edited: families are found by the classes of models that they handle.
"""

import warnings
from dataclasses import replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Protocol

from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.method.adapter import Adapter, Obstacle, TokenParts
from mjp.method.config import MJPConfig


class Family(Protocol):
    """A module of this folder."""

    ADAPTER: type[Adapter]
    EXAMPLE: tuple[str, dict[str, Any]]


@cache
def families() -> dict[str, Family]:
    """All families by the names of their files."""
    return {module.name: import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)}


def adapter_for(model: Any, config: MJPConfig) -> Adapter:
    """The nearest adapter that can carry the configuration; refuses, with all the reasons at once, if none can."""
    obstacles = obstacles_of(model, config)
    if obstacles:
        reasons = "; ".join(str(obstacle) for obstacle in obstacles)
        raise InputError(f"MJP cannot wrap this {type(model).__name__} as configured: {reasons}")
    return next(a for a in _candidates(model) if not _obstacles(a, model, config)).build(model, config)


def obstacles_of(model: Any, config: MJPConfig) -> list[Obstacle]:
    """Why no adapter can carry this configuration, in the words of the nearest one; empty if one can."""
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        return [Obstacle(f"it is a {kind}, not a torch module: create it with timm.create_model(name)")]
    answers = [_obstacles(adapter, model, config) for adapter in _candidates(model)]
    return answers[0] if all(answers) else []


def fit_config(config: MJPConfig, model: Any) -> MJPConfig:
    """The configuration, or what is left of it on a model that lacks what it hides or localises, with a warning."""
    obstacles = obstacles_of(model, config)
    remedies = [obstacle.remedy for obstacle in obstacles if obstacle.remedy is not None]
    if len(remedies) < len(obstacles):
        return config  # whatever else is in the way is for the caller to decide
    for obstacle, remedy in zip(obstacles, remedies, strict=True):
        warnings.warn(f"{type(model).__name__}: {obstacle.reason}; {remedy.remains}", stacklevel=3)
        config = replace(config, **remedy.changes)
    return config


def split_tokens(model: nn.Module, features: Tensor) -> TokenParts:
    """The result of a bare timm model's `forward_features` by role, as its family sees it."""
    return _candidates(model)[0].split_tokens(model, features)


def _candidates(model: nn.Module) -> list[type[Adapter]]:
    """The adapters that handle a class of this model, the most specific class first."""
    adapters = [family.ADAPTER for family in families().values()]
    return [adapter for kind in type(model).__mro__ for adapter in adapters if kind in adapter.handles]


def _obstacles(adapter: type[Adapter], model: nn.Module, config: MJPConfig) -> list[Obstacle]:
    obstacles = adapter.obstacles(model, config)
    if config.unknown_rotation == "learned" and not adapter.rotation_angles(model):
        obstacles.append(Obstacle("it has no rotary positions: leave `unknown_rotation` unset"))
    if config.ape and adapter.new_table is Adapter.new_table:
        obstacles.append(Obstacle("`ape` is for Swin: leave it unset"))
    return obstacles
