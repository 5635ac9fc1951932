"""The one configuration: variants, presets, validation, json."""

import dataclasses
import json
import math
from typing import Any

import pytest

import mjp
from method.tiny import cnn, swin, vit
from mjp.method.backbones import fit_config
from mjp.method.config import PRESETS, VARIANTS

# the ablation table of the paper: shuffle, position, localize
TABLE = {
    "A": ("none", "keep", "none"),
    "B": ("none", "none", "none"),
    "C": ("spp", "keep", "none"),
    "D": ("none", "keep", "nln"),
    "E": ("jigsaw", "keep", "none"),
    "F": ("jigsaw", "index", "none"),
    "G": ("jigsaw", "unknown", "none"),
    "H": ("jigsaw", "unknown", "pca"),
    "I": ("jigsaw", "unknown", "ln"),
    "J": ("jigsaw", "unknown", "nln"),
}


@pytest.mark.parametrize("name", TABLE)
def test_variant_is_its_row_of_the_ablation_table(name: str) -> None:
    config = mjp.variant(name)
    assert (config.shuffle, config.position, config.localize) == TABLE[name]


def test_there_are_ten_variants_and_three_presets() -> None:
    assert list(VARIANTS) == list(TABLE)
    assert list(PRESETS) == ["paper", "reference", "paper-privacy", "private"]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("paper", {"sampler": "blockwise", "shared": False, "probability": 1, "start_epoch": 0, "ratio": 0.03}),
        ("paper", {"localize_reduction": "sum"}),
        ("reference", {"sampler": "reference", "shared": True, "probability": 0.5, "start_epoch": 20, "ratio": 0.03}),
        ("reference", {"localize_reduction": "mean"}),
        ("paper-privacy", {"sampler": "blockwise", "shared": False, "probability": 1, "start_epoch": 0}),
    ],
)
def test_preset_says_when_and_how_the_jigsaw_is_active(name: str, fields: dict[str, Any]) -> None:
    config = mjp.preset(name)
    assert {key: getattr(config, key) for key in fields} == fields
    assert (config.shuffle, config.position, config.localize) == TABLE["J"]
    assert config.localize_weight == 0.01
    assert config.localize_targets == "grid"
    assert config.min_block == 8
    assert config.aspect == (0.3, 1 / 0.3)


def test_default_is_the_paper() -> None:
    assert mjp.MJPConfig() == mjp.preset("paper")


def test_fields_can_be_changed_by_name() -> None:
    assert mjp.variant("G", ratio=0.15) == dataclasses.replace(mjp.variant("G"), ratio=0.15)
    assert mjp.preset("paper-privacy", ratio=0.9).ratio == 0.9


def test_the_old_name_of_a_preset_still_loads_and_says_what_it_does_not_do() -> None:
    with pytest.warns(FutureWarning, match="now called paper-privacy: the attacks of `mjp audit` recover pictures"):
        assert mjp.preset("private") == mjp.preset("paper-privacy")


def test_config_does_not_change_after_creation() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        mjp.MJPConfig().ratio = 0.5  # type: ignore[misc]


@pytest.mark.parametrize("name", [*TABLE, *PRESETS])
def test_survives_json(name: str) -> None:
    config = mjp.variant(name) if name in TABLE else mjp.preset(name)
    assert mjp.MJPConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"ratio": -0.1}, "ratio must lie between 0 and 1"),
        ({"ratio": 1.1}, "ratio"),
        ({"ratio": math.nan}, "ratio"),
        ({"probability": 2}, "probability"),
        ({"probability": math.nan}, "probability"),
        ({"localize_weight": -1}, "localize_weight"),
        ({"localize_weight": math.nan}, "localize_weight"),
        ({"localize_weight": math.inf}, "localize_weight"),
        ({"min_block": 0}, "min_block"),
        ({"cell": 0}, "cell"),
        ({"start_epoch": -1}, "start_epoch"),
        ({"aspect": (1.0, 0.5)}, "aspect"),
        ({"aspect": (0.0, 0.5)}, "aspect"),
        ({"aspect": (1.0, 2.0, 3.0)}, "aspect"),
        ({"ape": True, "position": "none"}, "ape adds position embeddings, position='none' removes them"),
        ({"shuffle": "riffle"}, "shuffle must be one of none, jigsaw, spp, not 'riffle'"),
        ({"position": "rope"}, "position must be one of keep, none, index, unknown"),
        ({"localize": "mlp"}, "localize must be one of none, ln, nln, pca"),
        ({"localize_targets": "cm"}, "localize_targets must be one of grid, unit"),
        ({"localize_reduction": "max"}, "localize_reduction must be one of sum, mean"),
        ({"sampler": "spiral"}, "sampler must be one of blockwise, reference, uniform"),
        ({"unknown_init": "ones"}, "unknown_init must be one of normal, mean, zeros"),
    ],
)
def test_bad_values_are_refused_by_name(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(mjp.InputError, match=names):
        mjp.MJPConfig(**changes)
    with pytest.raises(mjp.InputError, match=names):
        mjp.variant("J", **changes)


def test_unknown_variant_lists_the_choices() -> None:
    with pytest.raises(mjp.InputError, match=r"unknown variant 'K'.*A, B, C, D, E, F, G, H, I, J"):
        mjp.variant("K")


def test_unknown_preset_lists_the_choices() -> None:
    with pytest.raises(mjp.InputError, match=r"unknown preset 'papre'.*paper, reference, paper-privacy"):
        mjp.preset("papre")
    with pytest.raises(mjp.InputError, match=r"unknown preset 'papre'.*paper, reference, paper-privacy"):
        mjp.MJP(vit(), "papre")


def test_unknown_field_of_a_stored_config_is_named() -> None:
    with pytest.raises(mjp.InputError, match="colour, gamma"):
        mjp.MJPConfig.from_dict({"ratio": 0.1, "gamma": 0.1, "colour": 1})


@pytest.mark.parametrize("make", [mjp.variant, mjp.preset])
def test_unknown_field_by_name_lists_the_choices(make: Any) -> None:
    with pytest.raises(mjp.InputError, match=r"gamma.*ratio"):
        make("J" if make is mjp.variant else "paper", gamma=0.1)


def test_only_positions_and_localization_need_position_embeddings() -> None:
    assert [name for name in TABLE if mjp.variant(name).needs_positions] == ["D", "F", "G", "H", "I", "J"]


@pytest.mark.parametrize("make", [cnn, swin, lambda: vit(pos_embed="none")])
def test_preset_for_a_model_without_positions_is_the_jigsaw_alone(make: Any) -> None:
    with pytest.warns(UserWarning, match="only the jigsaw is left"):
        config = fit_config(mjp.preset("private"), make())
    assert (config.shuffle, config.position, config.localize) == TABLE["E"]
    assert config.ratio == mjp.preset("private").ratio


def test_preset_for_a_model_with_positions_is_complete() -> None:
    assert fit_config(mjp.preset("paper"), vit()) == mjp.preset("paper")
    assert fit_config(mjp.preset("paper", ape=True), swin()) == mjp.preset("paper", ape=True)
