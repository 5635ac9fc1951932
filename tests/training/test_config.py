"""Recipes are complete, every field is an option, and whatever is misspelt is refused."""

from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from mjp.cli.main import main
from mjp.common.errors import InputError
from mjp.common.runs.recipe import load_recipe, recipes
from mjp.method.config import PRESETS, VARIANTS, MJPConfig
from mjp.training.arguments import config_from, named_config, parse_arguments
from mjp.training.config import TrainConfig

NAMES = ["deit_small_imagenet", "finetune", "mini_cifar10", "quickstart", "resnet50_imagenet", "swin_tiny_imagenet"]


def parsed(*arguments: str) -> TrainConfig:
    return parse_arguments(list(arguments), description="")


def test_without_arguments_it_is_the_quickstart() -> None:
    config = parsed()
    assert (config.recipe, config.data, config.preset) == ("quickstart", "embedded", "paper")


def test_there_are_six_recipes() -> None:
    assert recipes() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_makes_a_configuration(name: str) -> None:
    assert parsed("--recipe", name).recipe == name


@pytest.mark.parametrize("name", NAMES)
def test_the_head_of_a_recipe_states_command_time_and_accuracy(name: str) -> None:
    text = files("mjp.recipes").joinpath(f"{name}.yaml").read_text()
    head = [line for line in text.splitlines() if line.startswith("#")]
    for word in ("command", "time", "accuracy"):
        assert any(line.startswith(f"# {word}:") for line in head), word


def test_the_recipe_of_the_paper_is_supplementary_table_1() -> None:
    recipe = parsed("--recipe", "deit_small_imagenet")
    table: dict[str, Any] = {
        **{"model": "deit_small_patch16_224", "input_size": 224, "epochs": 300, "batch_size": 128, "accumulate": 1},
        **{"opt": "adamw", "opt_betas": (0.9, 0.999), "opt_eps": 1e-8, "lr": 5e-4, "sched": "cosine", "min_lr": 1e-5},
        **{"warmup_epochs": 20, "warmup_lr": 1e-6, "weight_decay": 0.05, "clip_grad": 5.0, "smoothing": 0.1},
        **{"drop": 0.0, "drop_path": 0.1, "repeated_aug": 3, "aa": "rand-m9-mstd0.5-inc1", "color_jitter": 0.4},
        **{"mixup": 0.8, "cutmix": 1.0, "mixup_prob": 1.0, "mixup_switch_prob": 0.5, "reprob": 0.25},
        **{"train_interpolation": "bicubic", "crop_pct": 224 / 256},
    }
    assert {name: getattr(recipe, name) for name in table} == table
    assert (recipe.mjp.ratio, recipe.mjp.localize_weight) == (0.03, 0.01)
    assert recipe.lr * 8 * recipe.batch_size / 512 == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("option", "value", "field", "expected"),
    [
        ("--mixup", "0.3", "mixup", 0.3),
        ("--cutmix", "0.5", "cutmix", 0.5),
        ("--reprob", "0.1", "reprob", 0.1),
        ("--drop-path", "0.2", "drop_path", 0.2),
        ("--repeated-aug", "2", "repeated_aug", 2),
        ("--warmup-epochs", "1.5", "warmup_epochs", 1.5),
        ("--aa", "None", "aa", None),
        ("--clip-grad", "None", "clip_grad", None),
        ("--batch-size", "6", "batch_size", 6),
        ("--out", "somewhere", "out", Path("somewhere")),
    ],
)
def test_options_have_the_names_that_deit_users_know(option: str, value: str, field: str, expected: object) -> None:
    assert getattr(parsed(option, value), field) == expected
    assert getattr(parsed(f"{option}={value}"), field) == expected


def test_several_values_and_switches() -> None:
    config = parsed("--model-kwargs", "depth=1", "embed_dim=24", "--opt-betas", "0.8", "0.9", "--model-ema")
    assert config.model_kwargs == ("depth=1", "embed_dim=24")
    assert config.opt_betas == (0.8, 0.9)
    assert config.model_ema


def sample(value: Any) -> list[str]:
    """Some other value of an option, as one would type it."""
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float):
        return [str((value / 2 or 0.5) if isinstance(value, float) else value + 2)]
    return ["0.1", "0.2"] if isinstance(value, tuple) and value else ["7"]


@pytest.mark.parametrize("name", [f.name for f in fields(TrainConfig) if f.name not in ("recipe", "preset", "mjp")])
def test_every_field_is_an_option(name: str) -> None:
    before = getattr(parsed(), name)
    field = next(f for f in fields(TrainConfig) if f.name == name)
    choices = [choice for choice in get_args(field.type) if isinstance(choice, str) and choice != before]
    values = choices[:1] or (["0.5"] if name == "layer_decay" else sample(before if before is not None else ""))
    needed = ["--pretrained"] if name == "head_lr" else []
    assert getattr(parsed(f"--{name.replace('_', '-')}", *values, *needed), name) != before


def test_options_win_over_the_recipe_and_the_rest_stays() -> None:
    config = parsed("--recipe", "mini_cifar10", "--lr", "0.5")
    assert config.lr == 0.5
    assert config.epochs == load_recipe("mini_cifar10")["epochs"]


@pytest.mark.parametrize(
    "arguments",
    [["--mixpu", "0.3"], ["--mixup", "much"], ["--amp", "bf61"], ["--mjp.ratoi", "0.1"], ["extra"], ["--lr"]],
)
def test_a_misspelt_option_is_an_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parsed(*arguments)
    assert stop.value.code == 2
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--preset", "--variant"])
@pytest.mark.parametrize("name", ["plain", *VARIANTS, *PRESETS])
def test_a_preset_is_chosen_by_name(option: str, name: str, tmp_path: Path) -> None:
    recipe = tmp_path / "empty.yaml"
    recipe.write_text("epochs: 3\n")
    for arguments in ([option, name], [f"{option}={name}"]):
        config = parsed("--recipe", str(recipe), *arguments)
        assert config.preset == name
        assert config.mjp == (VARIANTS | PRESETS | {"plain": VARIANTS["A"]})[name]


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        InputError, match=r"unknown preset 'papre': choose one of plain, A, .*J, paper, reference, paper-privacy"
    ):
        parsed("--preset", "papre")


def test_of_two_presets_the_last_counts() -> None:
    config = parsed("--preset", "plain", "--variant", "G")
    assert (config.preset, config.mjp.position) == ("G", "unknown")


def test_a_recipe_changes_its_preset_and_an_option_changes_both() -> None:
    assert parsed("--recipe", "mini_cifar10").mjp.ratio == 0.27
    assert parsed("--recipe", "mini_cifar10", "--preset", "E").mjp == replace(named_config("E"), ratio=0.27)
    assert parsed("--recipe", "mini_cifar10", "--preset", "E", "--mjp.ratio", "0.5").mjp.ratio == 0.5


@pytest.mark.parametrize("recipe", NAMES)
def test_a_chosen_preset_keeps_what_makes_it_what_it_is(recipe: str) -> None:
    assert parsed("--recipe", recipe, "--preset", "private").mjp.ratio == PRESETS["private"].ratio
    assert parsed("--recipe", recipe, "--preset", "reference").mjp.start_epoch == 20


def test_a_preset_can_be_chosen_over_the_config_file_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(parsed("--recipe", "mini_cifar10").to_yaml())
    plain = parsed("--recipe", str(tmp_path / "config.yaml"), "--preset", "plain")
    assert (plain.mjp.shuffle, plain.mjp.position, plain.mjp.localize) == ("none", "keep", "none")
    assert plain.mjp.ratio == 0.27


def test_a_configuration_survives_its_own_file() -> None:
    config = parsed("--recipe", "swin_tiny_imagenet", "--aa", "None", "--out", "x", "--mjp.aspect", "0.5", "2")
    assert config_from(yaml.safe_load(config.to_yaml())) == config


def test_the_default_folder_names_recipe_and_preset() -> None:
    assert parsed("--recipe", "mini_cifar10", "--preset", "G").folder == Path("out/mini_cifar10-G")
    assert parsed("--out", "elsewhere").folder == Path("elsewhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochz: 3", "unknown field epochz"),
        ("mjp: {ratoi: 0.1}", "unknown MJP setting 'ratoi'"),
        ("- 1\n- 2", "must hold fields and values"),
        ("a: [", "is not valid YAML"),
        ("epochs: many", "--epochs must be a whole number"),
        ("preset: Q", "unknown preset 'Q'"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        parsed("--recipe", str(tmp_path / "own.yaml"))


@pytest.mark.parametrize("name", ["quickstrat", "nowhere.yaml", "."])
def test_a_recipe_that_does_not_exist_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InputError, match="choose one of deit_small_imagenet"):
        parsed("--recipe", name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(name, 0) for name in ("epochs", "batch_size", "accumulate", "eval_every", "repeated_aug", "input_size")],
        *[(name, 1.5) for name in ("drop_path", "drop", "smoothing", "reprob", "mixup_prob")],
        *[(name, -1.0) for name in ("lr", "weight_decay", "warmup_epochs", "mixup", "cutmix")],
        *[(name, float("nan")) for name in ("lr", "smoothing")],
        *[("lr", float("inf")), ("max_unreadable", -1), ("workers", -1), ("limit", 0), ("val_limit", 0)],
        *[("momentum", -0.1), ("momentum", 1.5), ("clip_grad", -1.0), ("clip_grad", 0.0), ("crop_pct", 0.0)],
        *[("crop_pct", 1.2), ("seed", -1), ("seed", 2**63), ("layer_decay", 0.0), ("layer_decay", 1.5)],
        *[("head_lr", 0.0), ("opt_eps", -1.0), ("checkpoint_minutes", -1.0), ("stop_after", 0), ("recount", 0)],
        *[("opt_betas", (0.9, 1.5)), ("scale", (0.0, 1.0)), ("scale", (0.9, 0.5)), ("color_jitter", -1.0)],
    ],
)
def test_a_value_out_of_range_is_refused_by_the_name_of_its_option(field: str, value: float) -> None:
    with pytest.raises(InputError, match=f"--{field.replace('_', '-')} must"):
        TrainConfig(**{field: value}, pretrained=True)  # type: ignore[arg-type]


def test_an_empty_folder_name_is_refused() -> None:
    with pytest.raises(InputError, match="--out is empty"):
        TrainConfig(out=Path(""))


def test_two_sources_of_weights_are_refused() -> None:
    with pytest.raises(InputError, match="choose one"):
        TrainConfig(pretrained=True, checkpoint=Path("file"))


def test_a_rate_for_new_parameters_needs_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--recipe", "finetune", "--data", "embedded", "--out", str(tmp_path / "run")]) == 2
    assert "(--head-lr 40) needs weights to start from: name them with --pretrained" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("source", [["--pretrained"], ["--checkpoint", "w.pth"], ["--checkpoint=w.pth"]])
def test_with_pretrained_weights_the_unknown_position_starts_at_their_mean(source: list[str]) -> None:
    assert parsed().mjp.unknown_init == "normal"
    for preset in ("paper", "G", "reference"):
        assert parsed(*source, "--preset", preset).mjp.unknown_init == "mean"
    assert parsed(*source, "--mjp.unknown-init", "zeros").mjp.unknown_init == "zeros"


def test_freezing_may_be_asked_for_repeatedly() -> None:
    assert parsed("--freeze", "blocks.0.*", "--freeze", "pos_embed").freeze == ("blocks.0.*", "pos_embed")


def test_the_reference_preset_comes_with_the_authors_schedule_of_the_localization_weight() -> None:
    assert parsed("--preset", "reference").localize_schedule == "reference"
    assert parsed("--preset", "reference", "--localize-schedule", "constant").localize_schedule == "constant"
    assert parsed("--preset", "private").localize_schedule == "constant"


def test_settings_of_a_model_go_with_their_model() -> None:
    own = parsed("--model", "deit_tiny_patch16_224")
    assert (own.model_kwargs, own.input_size) == (parsed().model_kwargs, 32)
    other = parsed("--model", "deit3_small_patch16_384")
    assert (other.model, other.model_kwargs, other.input_size) == ("deit3_small_patch16_384", (), 384)
    explicit = parsed("--model=test_vit", "--model-kwargs", "depth=1", "--input-size", "64")
    assert (explicit.model_kwargs, explicit.input_size) == (("depth=1",), 64)
    assert other.epochs == parsed().epochs


def test_mixing_needs_an_even_batch() -> None:
    with pytest.raises(InputError, match="--batch-size must be even"):
        TrainConfig(batch_size=7, mixup=0.5, cutmix=0.0)
    assert TrainConfig(batch_size=7, mixup=0.0, cutmix=0.0).batch_size == 7


def test_the_default_method_is_that_of_the_paper() -> None:
    assert TrainConfig().mjp == MJPConfig() == PRESETS["paper"]
