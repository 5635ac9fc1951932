"""`mjp study` from what a person types to the files that it names."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import json
from pathlib import Path
from typing import Any

import pytest
import timm
from PIL import Image

from mjp.cli.main import main

SMALL: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 8,
    "depth": 1,
    "embed_dim": 24,
    "num_heads": 2,
    "num_classes": 10,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    for name, config in (("plain", "A"), ("mjp", "J"), ("pca", "H")):
        vit = timm.create_model("deit_tiny_patch16_224", **SMALL)
        mjp.MJP(vit, mjp.variant(config)).save_pretrained(folder / name)
    return [str(folder / name) for name in ("plain", "mjp", "pca")]


def test_several_models_give_figures_and_pictures(models: list[str], tmp_path: Path) -> None:
    Image.new("RGB", (60, 40), (90, 10, 10)).save(tmp_path / "red.png")
    assert main(["study", *models, "--pictures", str(tmp_path / "red.png"), "--out", str(tmp_path / "out")]) == 0
    figures = json.loads((tmp_path / "out" / "results.json").read_text())
    assert figures["kind"] == "study"
    assert (figures["settings"]["seed"], figures["settings"]["pictures"]) == (0, [str(tmp_path / "red.png")])
    assert list(figures["models"]) == figures["attention"] == models
    assert all(found["folds"] == 5 and found["place_mae"] > 0 for found in figures["models"].values())
    for name in ("positions-1.png", "positions-2.png", "positions-3.png", "attention.png"):
        with Image.open(tmp_path / "out" / name) as picture:
            assert picture.width > 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name at least one model"),
        (["MODEL", "--folds", "1"], "--folds must be a whole number of at least 2"),
        (["MODEL", "--pictures", "nowhere.jpg"], "there is no picture nowhere.jpg"),
        (["nothing_there"], "there is no model 'nothing_there'"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    arguments: list[str], message: str, models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [models[0] if a == "MODEL" else a for a in arguments]
    assert main(["study", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_without_positions_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mjp.MJP(timm.create_model("test_resnet", num_classes=10), mjp.variant("A")).save_pretrained(tmp_path / "cnn")
    assert main(["study", str(tmp_path / "cnn"), "--out", str(tmp_path / "out")]) == 2
    assert "has no absolute position embeddings to study" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
