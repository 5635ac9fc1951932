"""From recipe and command line to a TrainConfig. No torch in here, unless --model names another model."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import tyro

from mjp.common.errors import InputError
from mjp.common.key_path import default_path
from mjp.common.runs.recipe import load_recipe, value_of
from mjp.method.config import PRESET_NAMES, PRESETS, VARIANTS, MJPConfig, preset, variant
from mjp.training.config import TrainConfig


def named_config(name: str) -> MJPConfig:
    """plain, A–J, paper, reference or paper-privacy."""
    if name == "plain":
        return variant("A")
    if name in VARIANTS:
        return variant(name)
    if name in PRESETS:
        return preset(name)
    raise InputError(f"unknown preset {name!r}: choose one of plain, {', '.join([*VARIANTS, *PRESET_NAMES])}")


def config_from(values: dict[str, Any]) -> TrainConfig:
    """A configuration from plain values as YAML has them."""
    unknown = sorted(set(values) - {f.name for f in fields(TrainConfig)})
    if unknown:
        raise InputError(f"unknown field {', '.join(unknown)}: mjp train --help lists all")
    values = dict(values)
    named = named_config(values.get("preset", "paper"))
    changes = values.get("mjp", {})
    if values.get("pretrained") or values.get("checkpoint"):
        changes = {"unknown_init": "mean", **changes}  # a pretrained table has a mean that means something
    values["mjp"] = MJPConfig.from_dict({**named.to_dict(), **changes})
    if values.get("preset") == "reference":  # the authors' λ has a schedule
        values.setdefault("localize_schedule", "reference")
    if values.get("preset") in ("paper-privacy", "private"):  # its updates leave: no jigsaw from a seed that is public
        values.setdefault("secret_key", default_path())
    for name in ("data_dir", "out", "resume", "checkpoint", "secret_key"):
        if values.get(name) is not None:
            values[name] = Path(values[name])
    for name in ("model_kwargs", "opt_betas", "scale", "freeze"):
        if values.get(name) is not None:
            values[name] = tuple(values[name])
    try:
        return TrainConfig(**values)
    except TypeError as error:
        raise InputError(f"a field has a value of the wrong kind: {error}") from error


def parse_arguments(arguments: list[str], description: str) -> TrainConfig:
    """Recipe, then model and preset, then every option given."""
    recipe = value_of(arguments, "--recipe") or "quickstart"
    values = load_recipe(recipe) | {"recipe": recipe}
    model = value_of(arguments, "--model")
    if model is not None and model != values.get("model", TrainConfig.model):
        values = _without_model(values) | {"model": model, "input_size": _native_size(model)}
    name = value_of(arguments, "--preset", "--variant")
    if name is not None and name != values.get("preset", "paper"):
        values = {**values, "preset": name, "mjp": _changes(values, name)}
        values.pop("localize_schedule", None)  # that of the named preset
    if "--pretrained" in arguments:
        values["pretrained"] = True
    values["checkpoint"] = value_of(arguments, "--checkpoint") or values.get("checkpoint")
    return tyro.cli(TrainConfig, prog="mjp train", args=arguments, description=description, default=config_from(values))


def _without_model(values: dict[str, Any]) -> dict[str, Any]:
    """A recipe without what it says about its own model."""
    return {name: value for name, value in values.items() if name not in ("model", "model_kwargs", "input_size")}


def _native_size(model: str) -> int:
    """The input size that timm has for a model, in pixels."""
    from timm.models import get_pretrained_cfg, is_model

    cfg = get_pretrained_cfg(model) if is_model(model) else None
    return TrainConfig.input_size if cfg is None else int(cfg.input_size[-1])


def _changes(values: dict[str, Any], name: str) -> dict[str, Any]:
    """What a recipe changes about its preset, as far as the named preset leaves it open."""
    before = config_from(values).mjp.to_dict()
    old, new = (named_config(preset).to_dict() for preset in (values.get("preset", "paper"), name))
    usual = MJPConfig().to_dict()
    return {field: value for field, value in before.items() if value != old[field] and new[field] == usual[field]}
