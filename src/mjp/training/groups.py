"""Which parameters learn, and how fast: frozen ones, layer-wise decay, and a rate of their own for new ones."""

import re
from collections.abc import Set
from fnmatch import fnmatchcase
from typing import Any

from timm.models import group_parameters

from mjp.common.errors import InputError
from mjp.method.model import MJP


def freeze(model: MJP, patterns: tuple[str, ...]) -> list[str]:
    """Take the parameters that a pattern matches out of training; their names.

    A pattern is a glob on timm's parameter names (`blocks.0.*`), or a regular expression after `re:`.
    """
    frozen: set[str] = set()
    for pattern in patterns:
        matched = {name for name, _ in model.named_parameters() if _matches(pattern, name)}
        if not matched:
            examples = ", ".join(_short(name) for name, _ in list(model.named_parameters())[:4])
            raise InputError(f"--freeze {pattern} matches no parameter: their names are like {examples}")
        frozen |= matched
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError(f"--freeze {' '.join(patterns)} leaves nothing to train")
    return sorted(frozen)


def position_names(model: MJP) -> set[str]:
    """The names of the absolute position table, timm's or the one that `ape` adds, and of E_unk."""
    return {name for name, _ in model.named_parameters() if name == "unknown" or name.endswith("pos_embed")}


def parameter_groups(
    model: MJP,
    *,
    weight_decay: float,
    layer_decay: float | None,
    head_lr: float,
    new: set[str],
    decayed: Set[str] = frozenset(),
) -> list[dict[str, Any]]:
    """timm's parameter groups, with `lr_scale`: layer_decay per layer from the top, head_lr for what is new.

    `decayed` parameters have weight decay whatever timm says.
    """
    scales = learning_rate_scales(model, layer_decay=layer_decay, head_lr=head_lr, new=new)
    spared = model.no_weight_decay()
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        is_spared = (parameter.ndim <= 1 or name in spared) and name not in decayed
        decay = 0.0 if is_spared else weight_decay
        key = (scales[name], decay)
        group = groups.setdefault(key, {"lr_scale": scales[name], "weight_decay": decay, "params": []})
        group["params"].append(parameter)
    return list(groups.values())


def learning_rate_scales(model: MJP, *, layer_decay: float | None, head_lr: float, new: set[str]) -> dict[str, float]:
    """The factor of the learning rate by parameter name."""
    layers = _layers(model)
    top = max(layers.values())
    decay = 1.0 if layer_decay is None else layer_decay
    return {name: head_lr if name in new else decay ** (top - layer) for name, layer in layers.items()}


def _layers(model: MJP) -> dict[str, int]:
    """The layer of every parameter as timm counts them; what MJP adds: tables at the bottom, heads on top."""
    inner: Any = model.model
    names = [name for name, _ in model.named_parameters()]
    if not hasattr(inner, "group_matcher"):
        raise InputError(f"--layer-decay needs to know the layers of {type(inner).__name__}, and timm does not")
    layers: dict[str, int] = group_parameters(inner, inner.group_matcher(coarse=False), reverse=True)
    top = max(layers.values())
    added = {name: top if name.startswith("localizer.") else 0 for name in names if not name.startswith("model.")}
    return added | {f"model.{name}": layer for name, layer in layers.items()}


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        try:
            expression = re.compile(pattern.removeprefix("re:"))
        except re.error as error:
            raise InputError(f"--freeze {pattern} is not a regular expression: {error}") from error
        return expression.search(_short(name)) is not None
    return fnmatchcase(_short(name), pattern)


def _short(name: str) -> str:
    """A parameter's name in timm."""
    return name.removeprefix("model.")
