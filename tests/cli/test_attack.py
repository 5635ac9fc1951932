"""`mjp attack` and `mjp attack-update`: pictures in, pictures out, and bad input refused in a sentence."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from mjp.cli.main import main
from mjp.pictures.sets import embedded

# 16 patches, 64 dimensions: the direct attack has equations to spare
SMALL: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 8,
    "depth": 1,
    "embed_dim": 64,
    "num_heads": 2,
    "num_classes": 10,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a picture, and the gradient of the picture as another program would save it."""
    home = tmp_path_factory.mktemp("attack")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = mjp.MJP(timm.create_model("deit_tiny_patch16_224", **SMALL), mjp.variant("A"))
    model.save_pretrained(home / "model")
    pixels = embedded("val").pixels[3]
    Image.fromarray(pixels).save(home / "picture.png")
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    image = (torch.from_numpy(pixels.copy()).permute(2, 0, 1) / 255 - mean) / std
    vit = model.unwrap()
    torch.nn.functional.cross_entropy(vit(image.unsqueeze(0)), torch.tensor([4])).backward()
    gradients = {name: p.grad for name, p in vit.named_parameters() if p.grad is not None}
    save_file(gradients, home / "update.safetensors")
    return home


def findings(out: Path) -> dict[tuple[str, str], dict[str, Any]]:
    found = json.loads((out / "results.json").read_text())
    return {(one.get("defence", ""), one["attack"]): one for one in found["findings"]}


def test_a_plain_gradient_gives_the_picture_away_and_the_table_says_so(folder: Path, tmp_path: Path) -> None:
    defences = ["--defences", "none", "mjp:0.5", "fedavg:3", "--attacks", "direct", "subspace"]
    model = ["--model", str(folder / "model"), "--out", str(tmp_path)]
    assert main(["attack", str(folder / "picture.png"), *model, *defences]) == 0
    found = findings(tmp_path)
    assert found["none", "direct"]["scores"]["a"][0]["psnr"] > 50
    assert found["fedavg:3", "direct"]["scores"]["a"][0]["psnr"] > 50
    assert found["fedavg:3", "direct"]["facts"]["match"] > 0.99
    assert found["none", "guess"]["scores"]["a"][0]["psnr"] < 25
    assert "E_unk" in found["none", "subspace"]["refused"]
    assert set(found["mjp:0.5", "direct"]["scores"]) == {"b", "c"}
    assert found["mjp:0.5", "direct"]["scores"]["b"][0]["psnr"] < 30
    with Image.open(tmp_path / "attack.png") as sheet:
        assert sheet.width > 4 * 160


def test_an_update_from_elsewhere_is_rebuilt_and_checked_against_itself(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    update = [str(folder / "update.safetensors"), "--model", str(folder / "model")]
    assert main(["attack-update", *update, "--attacks", "direct", "span", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "direct          a picture that explains the update" in said
    assert findings(tmp_path)["", "direct"]["facts"]["match"] > 0.999


def test_a_wrong_picture_is_never_presented_as_a_result(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two pictures in one gradient, announced as such: what the direct attack finds does not explain them."""
    update = [str(folder / "noisy.safetensors"), "--model", str(folder / "model")]
    generator = torch.Generator().manual_seed(0)
    from safetensors.torch import load_file

    gradients = load_file(folder / "update.safetensors")
    noisy = {name: g + 3 * g.std() * torch.randn(g.shape, generator=generator) for name, g in gradients.items()}
    save_file(noisy, folder / "noisy.safetensors")
    assert main(["attack-update", *update, "--attacks", "direct", "--out", str(tmp_path)]) == 0
    assert "not a reconstruction" in capsys.readouterr().out


def test_a_fact_that_is_not_stated_is_the_models_own(folder: Path, tmp_path: Path) -> None:
    """Also beside facts that are: this model takes pictures of mean 0.5, as its builder states."""
    mjp.MJP(timm.create_model("vit_tiny_patch16_224", **SMALL), mjp.variant("A")).save_pretrained(tmp_path / "model")
    (tmp_path / "update.safetensors").write_bytes((folder / "update.safetensors").read_bytes())
    (tmp_path / "update.json").write_text('{"batch": 1}')
    update = [str(tmp_path / "update.safetensors"), "--model", str(tmp_path / "model")]
    assert main(["attack-update", *update, "--attacks", "direct", "--out", str(tmp_path / "out")]) == 0
    facts = json.loads((tmp_path / "out" / "results.json").read_text())["facts"]
    assert (facts["mean"], facts["std"], facts["size"]) == ([0.5] * 3, [0.5] * 3, [32, 32])


def test_json_is_the_results_file_and_nothing_else(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = ["--model", str(folder / "model"), "--attacks", "direct", "--out", str(tmp_path), "--json"]
    for command in (["attack", "--defences", "none"], ["attack-update", str(folder / "update.safetensors")]):
        assert main([*command, *choice]) == 0
        results = json.loads(capsys.readouterr().out)
        assert results == json.loads((tmp_path / "results.json").read_text())
        assert results["findings"][-1]["outcome"] == "explains"


def test_bad_updates_are_named(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (folder / "update.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    save_file({"foreign.weight": torch.ones(3)}, tmp_path / "foreign.safetensors")
    save_file({"cls_token": torch.full((1, 1, 64), torch.nan)}, tmp_path / "nan.safetensors")
    save_file({"cls_token": torch.zeros(1, 1, 64)}, tmp_path / "zero.safetensors")
    messages = {
        "cut": "is not a complete safetensors file",
        "foreign": "the update is of another model",
        "nan": "NaN or infinity",
        "zero": "every number of the update is zero",
        "absent": "there is no update",
    }
    for name, message in messages.items():
        arguments = [str(tmp_path / f"{name}.safetensors"), "--model", str(folder / "model")]
        assert main(["attack-update", *arguments, "--out", str(tmp_path / "out")]) == 2, name
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attacks", "telepathy"], "there is no attack 'telepathy'"),
        (["--defences", "hope"], "unknown defence 'hope'"),
        (["--label", "10"], "--label must be a class of the model, 0 to 9"),
        (["nowhere.png"], "there is no picture nowhere.png"),
        (["--defences", "none", "photo.jpg"], "photo.jpg looks like a file: pictures come first"),
        (["--attacks", "direct", "photo.jpg"], "photo.jpg looks like a file: pictures come first"),
        (["--gradients", "u.safetensors"], "to audit an update, run mjp attack-update FILE"),
        (["--gradients=u.safetensors"], "to audit an update, run mjp attack-update FILE"),
        (["--attacks"], "name at least one attack"),
        (["--defences"], "name at least one defence"),
        (["--pretrained", "--weights", "w.pth"], "--weights and --pretrained both say"),
        (["--seed", "99999999999999999999"], "--seed must be a whole number from 0 to"),
        (["--lpips", __file__], "cannot be read as weights: name torchvision's AlexNet"),
        (["--defences", "none", "--attacks", "subspace"], "no attack can run on these updates"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    arguments: list[str], message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attack", *arguments, "--model", str(folder / "model"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_is_refused_before_the_work(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for what in ([], [str(folder / "update.safetensors")]):
        assert main(["attack", *what, "--model", str(folder / "model"), "--out", str(tmp_path / "file" / "out")]) == 2
        said = capsys.readouterr()
        assert "is a file, name a folder with --out" in said.err
        assert said.out == ""


def test_numbers_too_small_to_solve_for_are_one_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.torch import load_file

    tiny = {name: g.double() * 1e-200 for name, g in load_file(folder / "update.safetensors").items()}
    save_file(tiny, tmp_path / "tiny.safetensors")
    update = [str(tmp_path / "tiny.safetensors"), "--model", str(folder / "model")]
    assert main(["attack-update", *update, "--attacks", "direct", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "direct          refuses: the numbers of the update are too small" in said
    assert "verdict: not covered: none of the attacks can run" in said


def test_april_says_that_its_network_is_another(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--model", str(folder / "model"), "--defences", "none", "--attacks", "april", "--out", str(tmp_path)]
    assert main(["attack", str(folder / "picture.png"), *arguments]) == 0
    assert "modified network" in capsys.readouterr().out
    assert "modified network" in findings(tmp_path)["none", "april"]["facts"]["attack_title"]


def test_the_sheet_has_decibels_reasons_and_says_which_network_is_another(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mjp.privacy.examine import present

    drawn: dict[str, Any] = {}
    draw = present.contact_sheet
    monkeypatch.setattr(
        present,
        "contact_sheet",
        lambda rows, columns, **more: drawn.update(rows=rows, columns=columns, **more) or draw(rows, columns, **more),
    )
    arguments = ["--model", str(folder / "model"), "--defences", "none", "mjp:0.5", "--out", str(tmp_path)]
    assert main(["attack", *[str(folder / "picture.png")] * 2, *arguments, "--attacks", "subspace"]) == 0
    assert len(drawn["rows"]) == 4  # two pictures of one name, two defences
    assert main(["attack", str(folder / "picture.png"), *arguments, "--attacks", "subspace", "april"]) == 0
    assert drawn["columns"] == ["picture", "data-free guess", "subspace", "april (modified network)"]
    assert "refused: the model has no E_unk" in drawn["rows"]["none"][2]
    score = findings(tmp_path)["none", "april"]["scores"]["a"][0]["psnr"]
    assert drawn["captions"]["none"][2:] == ["", f"{score:.1f} dB"]
    assert drawn["captions"]["mjp:0.5"][2].startswith("(b) ")
    assert "(b) against the shuffled picture" in drawn["title"]
