"""`mjp jigsaw`: real results, in the folder that it names."""

import json
from pathlib import Path

import pytest
from PIL import Image

from mjp.cli.main import main


def test_jigsaw_writes_a_picture_and_figures_that_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jigsaw", "--out", str(tmp_path / "out")]) == 0
    figures = json.loads((tmp_path / "out" / "results.json").read_text())
    assert figures["masked_patches"] == 52  # ⌊.27 · 196⌋
    assert figures["off_difference"] == figures["inverse_difference"] == 0
    assert figures["path_difference"] < 1e-5
    assert figures["order_in_gradient"] < 1e-5 < 1e-4 < figures["order_in_gradient_without_unknown"]
    assert figures["order_in_gradient_drop_path"] < 1e-5  # no single token is dropped
    assert all(figures[f"order_in_gradient_{name}"] > 1e-4 for name in ("bf16", "proj_drop", "pos_drop"))
    with Image.open(tmp_path / "out" / "jigsaw.png") as sheet:
        assert sheet.width > 6 * 224
    assert capsys.readouterr().out.strip().endswith(str(tmp_path / "out" / "results.json"))


def test_rotary_positions_have_the_guarantees_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", "vit_small_patch16_rope_224", "--ratio", "0.1", "--json"]
    assert main(["jigsaw", "--out", str(tmp_path / "out"), *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["off_difference"] == 0
    assert result["order_in_gradient"] <= 1e-5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--picture", "nowhere.jpg"], "there is no picture nowhere.jpg"),
        (["--model", "no_such_model"], "timm has no model 'no_such_model'"),
        (["--ratio", "1.5"], "ratio must lie between 0 and 1"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jigsaw", "--out", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_picture_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fake.jpg").write_text("not a picture")
    assert main(["jigsaw", "--out", str(tmp_path / "out"), "--picture", str(tmp_path / "fake.jpg")]) == 2
    assert "fake.jpg cannot be read as a picture" in capsys.readouterr().err


def test_an_own_picture_is_used(tmp_path: Path) -> None:
    Image.new("RGB", (300, 200), (255, 0, 0)).save(tmp_path / "red.png")
    assert main(["jigsaw", "--out", str(tmp_path / "out"), "--picture", str(tmp_path / "red.png")]) == 0
    with Image.open(tmp_path / "out" / "jigsaw.png") as sheet:
        colours = {colour for _, colour in sheet.convert("RGB").getcolors(1 << 24) or []}
    assert (255, 0, 0) in colours
