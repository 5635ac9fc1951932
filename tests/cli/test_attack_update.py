"""`mjp attack-update`: an update is audited as its client made it, and never reported safe in error."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mjp.cli.main import main
from mjp.pictures.sets import embedded
from mjp.privacy.client.victim import make_update
from mjp.privacy.combination import parse
from mjp.privacy.network import as_mjp, shared_network

NAME, SIZE = "test_vit", (64, 64)  # 16 patches, 64 dimensions: equations to spare


def client(**changes: Any) -> Any:
    """A timm model whose weights are not those of seed 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return timm.create_model(NAME, **{"img_size": SIZE, "num_classes": 10, **changes}).eval()


def picture() -> Tensor:
    """(1, 3, 64, 64) in [0, 1]."""
    pixels = torch.from_numpy(embedded("val").pixels[3].copy()).permute(2, 0, 1).unsqueeze(0) / 255
    return torch.nn.functional.interpolate(pixels, SIZE, mode="bilinear")


def save_gradient(model: Any, images: Tensor, path: Path) -> None:
    torch.nn.functional.cross_entropy(model(images), torch.tensor([4])).backward()
    save_file({name: p.grad for name, p in model.named_parameters() if p.grad is not None}, path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A client's gradient, of pictures of mean and std 0.5, and its weights in the ways that people save them."""
    home, model = tmp_path_factory.mktemp("file"), client()
    save_gradient(model, picture() * 2 - 1, home / "update.safetensors")
    (home / "update.json").write_text('{"size": [64, 64], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}')
    save_file(model.state_dict(), home / "bare.safetensors")
    torch.save({"model": {f"module.{name}": p for name, p in model.state_dict().items()}}, home / "nested.pth")
    save_file(mjp.MJP(model, "paper").state_dict(), home / "wrapped.safetensors")
    save_file(client(num_classes=12).state_dict(), home / "classes.safetensors")
    save_file(timm.create_model("test_vit2").state_dict(), home / "other.safetensors")
    (home / "photo.pt").write_bytes(b"no tensors")
    return home


def audit(path: Path, out: Path, *more: str) -> int:
    return main(["attack-update", str(path), "--model", f"timm:{NAME}", "--out", str(out), *more])


def test_a_copy_is_not_called_safe_because_the_weights_are_others(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(folder / "update.safetensors", tmp_path, "--attacks", "direct", "span") == 0
    direct, span = capsys.readouterr().out.splitlines()[1:3]
    assert "equations hold to" in direct
    assert "cannot be verified: the weights may not be the client's" in span
    assert not any("not a reconstruction" in line for line in (direct, span))


@pytest.mark.parametrize("weights", ["bare.safetensors", "nested.pth", "wrapped.safetensors"])
def test_with_the_clients_weights_it_is_checked(
    weights: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--attacks", "direct", "--weights", str(folder / weights))
    assert audit(folder / "update.safetensors", tmp_path, *more) == 0
    assert "a picture that explains the update (match 1.0000)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("classes.safetensors", "the update is of another model: head.bias has shape (10,), in the model (12,)"),
        ("other.safetensors", "the weights are of another model"),
        ("photo.pt", "is damaged or holds more than tensors and plain values: save it again"),
        ("nowhere.pt", "there is no file of weights"),
    ],
)
def test_weights_that_are_not_the_models_are_refused_in_a_sentence(
    weights: str, message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(folder / "update.safetensors", tmp_path / "out", "--weights", str(folder / weights)) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_clients_pixels_can_be_stated(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A client that fed 0 to 255: with the model's normalisation the pixels are none, and the command says so."""
    path, more = tmp_path / "raw.safetensors", ("--attacks", "direct", "--weights", str(folder / "bare.safetensors"))
    save_gradient(client(), picture() * 255, path)
    assert audit(path, tmp_path, *more, "--size", "64", "64") == 0
    said = capsys.readouterr().out
    assert "instead of 0 to 1: state --mean and --std of the client" in said
    assert "may not be the client's" not in said
    scale = ["--mean", "0", "0", "0", "--std", *["0.00392157"] * 3]
    assert audit(path, tmp_path, *more, "--size", "64", "64", *scale) == 0
    said = capsys.readouterr().out
    assert "explains the update" in said
    assert "state --mean" not in said


def test_the_network_is_the_one_that_the_client_had_under_its_defence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, attack, words in [
        ("mjp:0.07", "subspace", "a picture that explains the update (match 1.0000)"),  # one masked patch: exact
        ("no-pe", "span", "the model has no position embeddings"),
    ]:
        defence = parse(text)
        network = shared_network(as_mjp(client()), defence)
        generator = torch.Generator().manual_seed(1)
        update, _ = make_update(network, picture(), torch.tensor([4]), defence, generator=generator)
        update.save(tmp_path / "own.safetensors")
        weights = ("--weights", str(folder / "bare.safetensors"))
        audit(tmp_path / "own.safetensors", tmp_path / "out", *weights, "--attacks", attack)
        assert words in capsys.readouterr().out


def test_a_model_that_cannot_be_as_stated_is_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file({"fc.bias": torch.ones(1000)}, tmp_path / "fc.safetensors")
    arguments = [str(tmp_path / "fc.safetensors"), "--model", "timm:test_resnet", "--size", "64", "64"]
    assert main(["attack-update", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert "timm:test_resnet cannot be built with img_size (64, 64)" in capsys.readouterr().err


def test_a_fact_as_an_option_is_in_the_results(folder: Path, tmp_path: Path) -> None:
    assert audit(folder / "update.safetensors", tmp_path, "--attacks", "direct", "--defence", "noise:0") == 0
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["facts"]["defence"] == "noise:0"
    assert found["findings"][0]["verdict"]


def test_the_verdict_is_said_and_written(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As people's programs read it: one of three words, and the lists behind it."""
    weights = ("--weights", str(folder / "bare.safetensors"))
    assert audit(folder / "update.safetensors", tmp_path, "--attacks", "direct", "april", *weights) == 0
    assert "verdict: exposed: direct rebuilt what explains the update" in capsys.readouterr().out
    content = json.loads((tmp_path / "results.json").read_text())
    assert (content["verdict"], content["by"], content["ran"]) == ("exposed", ["direct"], ["direct"])
    assert list(content["could_not_run"]) == ["april"]
    assert "span" in content["not_tried"]
    head = {name: tensor for name, tensor in load_file(folder / "update.safetensors").items() if "head" in name}
    save_file(head, tmp_path / "head.safetensors")
    assert audit(tmp_path / "head.safetensors", tmp_path, *weights, "--size", "64", "64") == 0
    assert "verdict: not covered: only the last layers left the client" in capsys.readouterr().out
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["verdict"] == "not covered"
    assert "the classes of the pictures" in content["gaps"][0]["remains"]


def log_of(folder: Path) -> Path:
    """The leak log of two rounds: one client has the same picture in both, another has another."""
    model = client()
    for number in (1, 2):
        home = folder / f"round-{number}"
        home.mkdir(parents=True)
        save_file(model.state_dict(), home / "weights.safetensors")
        save_gradient(model, picture(), home / "mary.safetensors")
        model.zero_grad()
        if number == 2:
            save_gradient(model, picture().flip(-1), home / "paul.safetensors")
        for path in home.glob("[mp]*.safetensors"):
            path.with_suffix(".json").write_text('{"size": [64, 64]}')
        with torch.no_grad():
            model.head.bias.add_(torch.linspace(-0.1, 0.1, 10))
    return folder


def test_a_folder_of_updates_is_linked_and_every_group_gets_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_of(tmp_path / "log")
    assert audit(log, tmp_path / "out", "--attacks", "direct") == 0
    said = capsys.readouterr().out
    assert "2 of 3 updates are of one picture: round-1/mary.safetensors, round-2/mary.safetensors" in said
    assert "round-2/paul.safetensors is linked to no other update" in said
    assert "rounds          2 updates together: a picture that explains the update" in said
    assert "all updates: exposed: 2 of 2 groups" in said
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert content["verdict"] == "exposed"
    assert [group["updates"] for group in content["groups"]] == [
        ["round-1/mary.safetensors", "round-2/mary.safetensors"],
        ["round-2/paul.safetensors"],
    ]
    assert [Path(update["weights"]).parent.name for update in content["updates"]] == ["round-1", "round-2", "round-2"]
    assert main(["report", str(tmp_path / "page.html"), str(tmp_path / "out")]) == 0
    assert f"mjp attack-update {log}" in (tmp_path / "page.html").read_text()


def test_of_several_updates_the_bad_one_is_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    update = folder / "update.safetensors"
    save_file({"head.bias": torch.ones(12)}, tmp_path / "other.safetensors")
    (tmp_path / "other.json").write_text('{"size": [64, 64]}')
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(update.read_bytes())
    copy.with_suffix(".json").write_text(update.with_suffix(".json").read_text())
    weights = ("--weights", str(folder / "bare.safetensors"))
    cases: list[tuple[list[Path | str], str]] = [
        ([update, tmp_path / "other.safetensors"], "other.safetensors: the update is of another model: head.bias has"),
        ([update, update], "update.safetensors is there twice: name every update once"),
        ([update, copy], "holds the same update, bit for bit: name one of them"),
        ([update, copy, tmp_path / "other.safetensors", *weights, folder / "bare.safetensors"], "--weights names 2"),
    ]
    for paths, message in cases:
        arguments = ["attack-update", *map(str, paths), "--model", f"timm:{NAME}", "--out", str(tmp_path / "out")]
        assert main([*arguments, *(() if "--weights" in arguments else weights)]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_the_report_shows_it_and_the_command(folder: Path, tmp_path: Path) -> None:
    path = folder / "update.safetensors"
    assert audit(path, tmp_path / "out", "--attacks", "direct") == 0
    assert main(["report", str(tmp_path / "page.html"), str(tmp_path / "out")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "what the server can see of an update" in page
    assert f"mjp attack-update {path}" in page
