"""The settings of recipe `finetune` are those with which the scale finetune_long was measured."""

from mjp.common.runs.recipe import load_recipe
from mjp.reproduce.scale_file import load_scale

ABOUT_THE_DATA = {"recipe", "input_size", "limit", "val_limit", "eval_every", "workers", "amp", "preset", "mjp"}


def test_the_recipe_is_what_was_measured() -> None:
    recipe = load_recipe("finetune")
    for run in load_scale("finetune_long").runs.values():
        settings = {name: value for name, value in run.train.items() if name not in ABOUT_THE_DATA}
        assert settings == {name: recipe.get(name) for name in settings}
    assert load_scale("finetune_long").runs["J"].train["mjp"]["ratio"] == recipe["mjp"]["ratio"]
