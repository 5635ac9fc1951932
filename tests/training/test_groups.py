"""Every parameter learns at its own rate, or not at all."""

from pathlib import Path
from typing import Any

import pytest
import torch

from mjp.common.errors import InputError
from mjp.method.model import MJP
from mjp.training.build import build_model, build_optimizer, build_schedule
from mjp.training.engine import train
from mjp.training.groups import freeze
from training.runs import TINY_VIT, settings, started, tensors

DEEP = [*TINY_VIT[:2], "depth=3", "num_heads=2"]


def built(**changes: Any) -> tuple[MJP, Any]:
    config = settings(Path("nowhere"), Path("nowhere"), model_kwargs=DEEP, checkpoint="anything", **changes)
    return build_model(config, 2), config


def rates(model: MJP, config: Any, new: set[str]) -> dict[str, float]:
    """The learning rate of every parameter at the end of the warm-up, over the recipe's."""
    optimizer = build_optimizer(config, model, 512, new)
    build_schedule(config, optimizer, 100).step_update(100)
    by_parameter = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    top = max(by_parameter.values())
    return {name: by_parameter[id(p)] / top for name, p in model.named_parameters() if id(p) in by_parameter}


def test_the_learning_rate_falls_from_layer_to_layer() -> None:
    model, config = built(layer_decay=0.5)
    scales = rates(model, config, new=set())
    expected = {"model.head.": 1, "localizer.": 1, "model.norm.": 1 / 2, "model.blocks.2.": 1 / 2}
    expected |= {"model.blocks.1.": 1 / 4, "model.blocks.0.": 1 / 8}
    expected |= {"model.patch_embed.": 1 / 16, "model.pos_embed": 1 / 16, "model.cls_token": 1 / 16, "unknown": 1 / 16}
    assert scales == pytest.approx(
        {name: scale for name in scales for prefix, scale in expected.items() if name.startswith(prefix)}
    )


def test_new_parameters_learn_at_the_rate_of_the_head_wherever_they_are() -> None:
    model, config = built(layer_decay=0.5, head_lr=4.0)
    new = {"unknown", "model.head.weight", "model.head.bias", "localizer.head.0.weight"}
    scales = rates(model, config, new)
    assert {name for name, scale in scales.items() if scale == 1} == new
    assert scales["model.norm.weight"] == pytest.approx(1 / 8)


def test_the_rate_of_the_head_works_without_layer_decay() -> None:
    model, config = built(head_lr=10.0)
    scales = rates(model, config, {"model.head.weight"})
    assert scales.pop("model.head.weight") == 1
    assert scales == pytest.approx(dict.fromkeys(scales, 0.1))


def test_groups_spare_from_decay_what_timm_spares() -> None:
    model, config = built(layer_decay=0.5)
    by_timm = build_optimizer(built()[1], model, 8)
    ours = build_optimizer(config, model, 8)
    decayed = [{id(p) for g in o.param_groups if g["weight_decay"] for p in g["params"]} for o in (by_timm, ours)]
    assert decayed[0] == decayed[1]


def test_a_model_whose_layers_timm_does_not_know_is_refused() -> None:
    model, config = built(layer_decay=0.5)
    model.model = torch.nn.Identity()
    with pytest.raises(InputError, match="needs to know the layers of Identity"):
        build_optimizer(config, model, 8)


@pytest.mark.parametrize(
    ("patterns", "prefixes"),
    [
        (("blocks.0.*",), ("model.blocks.0.",)),
        (("patch_embed.*", "pos_embed"), ("model.patch_embed.", "model.pos_embed")),
        (("re:^blocks\\.[01]\\.",), ("model.blocks.0.", "model.blocks.1.")),
        (("localizer.*", "unknown"), ("localizer.", "unknown")),
        (("re:^(?!head)",), ("model.blocks", "model.patch", "model.pos", "model.cls", "model.norm", "loc", "unknown")),
    ],
)
def test_patterns_freeze_what_they_match_and_nothing_else(patterns: tuple[str, ...], prefixes: tuple[str, ...]) -> None:
    model, _ = built()
    names = [name for name, _ in model.named_parameters()]
    assert freeze(model, patterns) == sorted(name for name in names if name.startswith(prefixes))
    assert all(p.requires_grad != name.startswith(prefixes) for name, p in model.named_parameters())


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("block.*", r"--freeze block\.\* matches no parameter: their names are like"),
        ("re:(", "is not a regular expression"),
        ("*", "leaves nothing to train"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        freeze(built()[0], (pattern,))


@pytest.mark.parametrize("changes", [{}, {"layer_decay": 0.7}], ids=["timm's groups", "layer decay"])
def test_frozen_parameters_do_not_move(data: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    config = settings(data, tmp_path, freeze=["blocks.*", "pos_embed"], **changes)
    before = {name: value.clone() for name, value in started(config).model.state_dict().items()}
    train(config)
    still = {name for name, value in tensors(tmp_path).items() if torch.equal(value, before[name])}
    assert still == {name for name in before if name.startswith(("model.blocks.", "model.pos_embed"))}
