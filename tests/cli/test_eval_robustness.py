"""Robustness in `mjp eval`, from what a person types to the files that it names."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from sklearn.metrics import average_precision_score
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor

from mjp.cli.main import main
from mjp.evaluation.robustness.corruptions import CORRUPTIONS
from mjp.evaluation.robustness.imagenet_subsets import IMAGENET_A, IMAGENET_O, wordnet_ids
from mjp.pictures.sets import InMemory, embedded

ALONE = ["--ratios", "--workers", "0"]  # no jigsaw


def tiny(folder: Path, outputs: int, classes: list[str] | None = None) -> Path:
    """A small model without training whose answers nevertheless depend on the picture."""
    size: dict[str, Any] = {"img_size": 32, "patch_size": 8, "depth": 1, "embed_dim": 24, "num_heads": 2}
    torch.manual_seed(0)
    model = mjp.MJP(timm.create_model("deit_tiny_patch16_224", num_classes=outputs, **size))
    with torch.no_grad():
        for name, parameter in model.model.named_parameters():
            if parameter.dim() > 1 and name not in ("cls_token", "pos_embed"):  # those and biases drown the picture
                parameter.add_(torch.randn_like(parameter), alpha=0.25)
    model.classes = classes
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("models") / "ten", 10, pictures().classes)


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("models") / "thousand", 1000)


@cache
def pictures() -> InMemory:
    return embedded("val")


def fill(root: Path, classes: list[str], *, first: int = 0) -> None:
    """One CIFAR-10 picture in every class, no two the same."""
    for k, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        pictures().load((first + 7 * k) % 1000).save(root / name / "a.png")


def results(out: Path) -> dict[str, Any]:
    (found,) = json.loads((out / "results.json").read_text())["models"].values()
    return found


def logits(model: Path, paths: list[Path]) -> Tensor:
    """What a model says about pictures, without anything that `mjp eval` uses to ask it."""
    pixels = np.stack([np.array(Image.open(path)) for path in paths]) / 255
    images = torch.from_numpy((pixels - IMAGENET_DEFAULT_MEAN) / IMAGENET_DEFAULT_STD).float().permute(0, 3, 1, 2)
    with torch.no_grad():
        return mjp.MJP.from_pretrained(model).eval()(images)


# corruptions on the fly


def test_corrupts_any_pictures_and_writes_figures_chart_and_sheet(
    ten: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(ten), *ALONE, "--corrupt", "--limit", "12", "--out", str(tmp_path / "out")]) == 0
    found = results(tmp_path / "out")["robustness"]["corruptions"]
    assert tuple(found["errors"]) == CORRUPTIONS
    assert all(len(row) == 5 and all(0 <= error <= 1 for error in row) for row in found["errors"].values())
    assert (found["source"], found["pictures"], found["seed"], found["missing"]) == ("generated", 12, 0, [])
    mean, low, high = found["mce_unnormalised"]
    assert low <= mean <= high
    assert mean == pytest.approx(np.mean(list(found["errors"].values())))
    said = capsys.readouterr().out
    assert "generated corruptions, not ImageNet-C" in said
    assert "over 15 of 15 corruptions" in said
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        *("corruptions.png", "results.json", "robustness-dark.png", "robustness.png")
    ]
    with Image.open(tmp_path / "out" / "corruptions.png") as sheet:
        assert sheet.height > 15 * 96


def test_figures_depend_on_the_seed_but_not_on_batches_or_workers(ten: Path, tmp_path: Path) -> None:
    def figures(*options: str) -> Any:
        command = ["eval", str(ten), "--ratios", "--corrupt", "--corruptions", "gaussian_noise", "snow"]
        assert main([*command, "--severities", "3", "5", "--limit", "60", "--out", str(tmp_path), *options]) == 0
        return results(tmp_path)["robustness"]["corruptions"]

    reference = figures("--workers", "0")
    assert reference == figures("--workers", "2", "--batch-size", "7")
    assert reference["mce"] is None  # AlexNet's errors are over five severities
    assert reference["errors"] != figures("--workers", "0", "--seed", "1")["errors"]


def test_clean_accuracy_comes_with_it_and_the_jigsaw_if_wanted(ten: Path, tmp_path: Path) -> None:
    command = ["eval", str(ten), "--corrupt", "--corruptions", "fog", "--limit", "20", "--workers", "0"]
    assert main([*command, "--ratios", "--out", str(tmp_path / "a")]) == 0
    assert main([*command, "--ratios", "0.5", "--draws", "1", "--out", str(tmp_path / "b")]) == 0
    without, with_jigsaw = results(tmp_path / "a"), results(tmp_path / "b")
    assert without["top1"] == with_jigsaw["top1"]
    assert (len(without["points"]), len(with_jigsaw["points"])) == (0, 2)
    assert not (tmp_path / "a" / "sweep.png").exists()
    assert (tmp_path / "b" / "sweep.png").exists()
    assert without["robustness"] == with_jigsaw["robustness"]


def test_an_unreadable_picture_is_named_or_counted_as_wrong(
    ten: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "data", pictures().classes)
    (tmp_path / "data" / "airplane" / "a.png").write_text("broken")
    command = ["eval", str(ten), *ALONE, "--corrupt", "--corruptions", "fog", "--data", str(tmp_path / "data")]
    assert main([*command, "--out", str(tmp_path / "out")]) == 2
    assert "airplane/a.png" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main([*command, "--max-unreadable", "1", "--out", str(tmp_path / "out")]) == 0
    assert results(tmp_path / "out")["robustness"]["corruptions"]["pictures"] == 10
    assert (tmp_path / "out" / "corruptions.png").exists()


# ImageNet-C from a folder


def test_folders_of_corrupted_pictures_are_measured(ten: Path, tmp_path: Path) -> None:
    classes = pictures().classes
    for severity in range(1, 6):
        fill(tmp_path / "c" / "weather" / "fog" / str(severity), classes, first=severity)
    command = ["eval", str(ten), *ALONE, "--imagenet-c", str(tmp_path / "c"), "--out", str(tmp_path / "out")]
    assert main([*command, "--corruptions", "fog"]) == 0
    found = results(tmp_path / "out")["robustness"]["corruptions"]
    for severity, error in zip(range(1, 6), found["errors"]["fog"], strict=True):
        folder = tmp_path / "c" / "weather" / "fog" / str(severity)
        said = logits(ten, [folder / name / "a.png" for name in classes]).argmax(1)
        assert error == pytest.approx((said != torch.arange(10)).float().mean().item())
    assert found["mce"][0] == pytest.approx(np.mean(found["errors"]["fog"]) / 0.819324)
    assert found["source"] == str(tmp_path / "c")
    assert not (tmp_path / "out" / "corruptions.png").exists()


def test_a_missing_corruption_is_named_unless_it_may_be(
    ten: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for severity in range(1, 6):
        fill(tmp_path / "c" / "fog" / str(severity), pictures().classes)
    command = ["eval", str(ten), *ALONE, "--imagenet-c", str(tmp_path / "c"), "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert "lacks gaussian_noise, shot_noise" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main([*command, "--allow-missing"]) == 0
    found = results(tmp_path / "out")["robustness"]["corruptions"]
    assert sorted([*found["missing"], "fog"]) == sorted(CORRUPTIONS)
    assert found["mce_over"] == 1
    assert "over 1 of 15 corruptions" in capsys.readouterr().out


# ImageNet-A and ImageNet-O


def test_imagenet_a_is_answered_among_its_200_classes(thousand: Path, tmp_path: Path) -> None:
    ids, root = wordnet_ids(IMAGENET_A), tmp_path / "a"
    fill(root, ids)
    paths = [root / name / "a.png" for name in ids]
    labels = list(range(200))
    favourite = int(logits(thousand, paths)[:, list(IMAGENET_A)].argmax(1).mode().values)
    for k in range(40):  # more pictures of the class that the model likes to name, so that some answers are right
        paths.append(root / ids[favourite] / f"b{k}.png")
        labels.append(favourite)
        pictures().load(7 * k + 3).save(paths[-1])
    assert main(["eval", str(thousand), *ALONE, "--imagenet-a", str(root), "--out", str(tmp_path / "out")]) == 0
    found = results(tmp_path / "out")["robustness"]["imagenet_a"]
    confidence, chosen = logits(thousand, paths)[:, list(IMAGENET_A)].softmax(1).max(1)
    right = chosen == torch.tensor(labels)
    assert 0 < right.sum() < 240 == found["pictures"]
    assert found["accuracy"][0] == pytest.approx(right.float().mean().item())
    sure_first = right[confidence.argsort(descending=True)].double().cumsum(0) / torch.arange(1, 241)
    assert found["aurra"][0] == pytest.approx(sure_first.mean().item())
    assert found["aurra"][1] <= found["aurra"][0] <= found["aurra"][2]


def test_imagenet_o_outliers_are_told_from_ordinary_pictures_of_their_classes(thousand: Path, tmp_path: Path) -> None:
    ids = wordnet_ids(IMAGENET_O)
    fill(tmp_path / "o", ids)
    fill(tmp_path / "val", [*ids, "n01440764"], first=3)  # a further class, which is passed over
    folders = ["--imagenet-o", str(tmp_path / "o"), "--imagenet-val", str(tmp_path / "val")]
    assert main(["eval", str(thousand), *ALONE, *folders, "--out", str(tmp_path / "out")]) == 0
    found = results(tmp_path / "out")["robustness"]["imagenet_o"]
    scores = [
        -logits(thousand, [tmp_path / side / name / "a.png" for name in ids])[:, list(IMAGENET_O)].softmax(1).amax(1)
        for side in ("o", "val")
    ]
    theirs = average_precision_score([1] * 200 + [0] * 200, torch.cat(scores).numpy())
    assert found["aupr"][0] == pytest.approx(theirs, abs=1e-6)
    assert (found["outliers"], found["ordinary_pictures"]) == (200, 200)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corrupt", "--corruptions", "rain"], "there is no 'rain', choose from gaussian_noise"),
        (["--corrupt", "--severities", "0"], "--severities at least one of 1, 2, 3, 4, 5"),
        (["--corrupt", "--imagenet-c", "DIR"], "choose one"),
        (["--imagenet-c", "nowhere"], "there is no folder nowhere"),
        (["--imagenet-c", "DIR"], "holds no folder CORRUPTION/SEVERITY"),
        (["--imagenet-a", "DIR"], "has 0 class folders with pictures, at least 2 are needed"),
        (["--imagenet-o", "DIR"], "--imagenet-o needs --imagenet-val"),
        (["--corrupt", "--data", "DIR"], "has 0 class folders"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    arguments: list[str], message: str, ten: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    arguments = [str(tmp_path / "empty") if a == "DIR" else a for a in arguments]
    assert main(["eval", str(ten), *ALONE, *arguments, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_model_of_ten_classes_cannot_answer_imagenet_a(
    ten: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "a", wordnet_ids(IMAGENET_A))
    assert main(["eval", str(ten), *ALONE, "--imagenet-a", str(tmp_path / "a"), "--out", str(tmp_path / "out")]) == 2
    assert "needs a model of the 1,000 ImageNet classes" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
