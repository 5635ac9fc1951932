"""`mjp audit`: the whole table, kept through a kill, with the guess in every row."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image

from mjp.cli.main import main
from mjp.common.charts import pyplot
from mjp.common.results import read_results
from mjp.common.runs.lock import hold_folder
from mjp.pictures.sets import embedded
from mjp.privacy.audit.chart import draw_audit
from mjp.report.cells import NOTHING
from mjp.report.runs import Run
from mjp.report.sections.leakage import gather

SMALL: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 8,
    "depth": 1,
    "embed_dim": 64,
    "num_heads": 2,
    "num_classes": 10,
}
DEFENCES = ["--defences", "none", "mjp:0.5", "batch:2", "--attacks", "direct", "subspace"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    for name, config in (("plain", "A"), ("mjp", "J")):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = mjp.MJP(timm.create_model("deit_tiny_patch16_224", **SMALL), mjp.variant(config))
        model.classes = embedded("val").classes
        model.save_pretrained(folder / name)
    return [str(folder / name) for name in ("plain", "mjp")]


def arguments(models: list[str], out: Path) -> list[str]:
    return ["audit", "--models", *models, *DEFENCES, "--pictures", "2", "--accuracy", "50", "--out", str(out)]


def test_the_table_has_the_guess_the_best_attack_and_its_gain(models: list[str], tmp_path: Path) -> None:
    assert main(arguments(models, tmp_path)) == 0
    facts = json.loads((tmp_path / "results.json").read_text())
    rows = {(row["model"], row["defence"], row["setting"]): row for row in facts["rows"]}
    plain = rows[models[0], "none", "a"]
    assert plain["best"] == "direct"
    guess, best = plain["attacks"]["guess"]["psnr"][0], plain["attacks"]["direct"]["psnr"][0]
    assert plain["gain_psnr"]["db"][0] == pytest.approx(best - guess)
    assert best > 50 > 25 > guess
    assert "E_unk" in plain["refused"]["subspace"]
    masked = rows[models[1], "mjp:0.5", "b"]
    assert masked["gain_psnr_masked"]["db"][0] < 20
    assert rows[models[0], "batch:2", "a"]["attacks"]["direct"]["pictures"] == 2
    assert facts["models"][models[0]]["pictures"] == 50
    assert models[1] in facts["headline"]
    with (tmp_path / "audit.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert {line["attack"] for line in lines} == {"guess", "direct", "subspace"}
    by = {(line["model"], line["defence"], line["attack"]): line for line in lines}
    assert float(by[models[1], "none", "direct"]["top1"]) == facts["models"][models[1]]["top1"][0]
    points = [p for p in facts["models"][models[1]]["points"] if p["unknown"]]
    assert float(by[models[1], "mjp:0.5", "direct"]["consistency"]) == points[0]["consistency"][0]
    assert by[models[0], "mjp:0.5", "direct"]["top1"] == ""  # it was not trained with E_unk
    assert float(by[models[0], "none", "direct"]["worst_picture"]) >= float(by[models[0], "none", "direct"]["psnr"])
    with Image.open(tmp_path / "audit.png") as chart:
        assert chart.width > 400


def test_accuracy_stands_beside_the_defences_that_it_was_measured_for(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And beside no other: nothing was trained with noise, rounding or local steps."""
    free = ("none", "mjp:0.5", "mjp:0.5+batch:2+withheld-pe")
    dear = ("bf16", "noise:0.1", "prune:0.5", "mjp:0.5+bf16", "fedavg:1", "frozen-pe")
    common = ["--attacks", "direct", "--pictures", "1", "--accuracy", "50", "--out", str(tmp_path)]
    assert main(["audit", "--models", models[1], "--defences", *free, *dear, *common]) == 0
    with (tmp_path / "audit.csv").open() as file:
        told = {line["defence"]: (line["top1"], line["consistency"]) for line in csv.DictReader(file)}
    assert all(all(told[name]) for name in free)
    assert {told[name] for name in dear} == {("", "")}
    printed = {line.split()[0]: line.split()[2:4] for line in capsys.readouterr().out.splitlines() if "(" in line}
    assert printed["none"] == [f"{100 * float(told['none'][0]):.1f}", "100.0"]
    assert printed["bf16"] == ["–", "–"]
    rows = gather([Run(tmp_path, read_results(tmp_path))])["audits"][0]["rows"]
    assert {row["defence"] for row in rows if row["cells"][0] != NOTHING} == set(free)


def test_a_killed_audit_goes_on_and_gives_the_same_table(models: list[str], tmp_path: Path) -> None:
    """Cut the file of cells in the middle of a line, as a kill does."""
    assert main(arguments(models[:1], tmp_path)) == 0
    cells = (tmp_path / "cells.jsonl").read_bytes()
    first = json.loads((tmp_path / "results.json").read_text())["rows"]
    lines = cells.splitlines(keepends=True)
    (tmp_path / "cells.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:40])
    assert main(arguments(models[:1], tmp_path)) == 0
    again = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row["attacks"]["guess"]["psnr"] for row in again] == [row["attacks"]["guess"]["psnr"] for row in first]
    for one, other in zip(again, first, strict=True):  # solvers on several threads differ in the last digits
        assert one["gain_psnr"]["db"] == pytest.approx(other["gain_psnr"]["db"], abs=1e-4)
    kept = (tmp_path / "cells.jsonl").read_bytes().splitlines()
    assert kept[:3] == [line.rstrip(b"\n") for line in lines[:3]]  # finished cells were not made again


def test_other_settings_do_not_mix(models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(models[:1], tmp_path)) == 0
    assert main([*arguments(models[:1], tmp_path), "--seed", "1"]) == 2
    assert "belongs to an audit with other settings" in capsys.readouterr().err


def test_the_page_shows_it(models: list[str], tmp_path: Path) -> None:
    assert main(arguments(models, tmp_path / "audit")) == 0
    assert main(["report", str(tmp_path / "page.html"), str(tmp_path / "audit")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "What a gradient gives away" in page
    assert "mjp audit" in page


def test_what_was_measured_otherwise_is_not_taken_over(
    models: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cells without LPIPS do not answer for an audit with it, nor those of other weights under the same name."""
    again = ["audit", "--models", str(tmp_path / "model"), "--defences", "none", "--attacks", "direct"]
    again += ["--pictures", "1", "--accuracy", "0", "--out", str(tmp_path / "out")]
    model = mjp.MJP.from_pretrained(models[0])
    model.save_pretrained(tmp_path / "model")
    assert main(again) == 0
    with monkeypatch.context() as patch:
        patch.setattr("mjp.privacy.audit.run.find_lpips", lambda path: (lambda original, copy: 0.5, "a measure"))
        assert main(again) == 2
    assert "other settings (lpips)" in capsys.readouterr().err
    model.get_parameter("model.head.bias").data[0] += 1
    model.save_pretrained(tmp_path / "model")
    assert main(again) == 2
    assert "with other weights" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--steps", "0", "--steps must be a whole number of at least 1"),
        ("--accuracy", "-3", "--accuracy must be a whole number of at least 0"),
        ("--seed", "99999999999999999999", "--seed must be a whole number from 0 to"),
        ("--restarts", "-1", "--restarts must be a whole number of at least 0"),
        ("--tv", "-0.5", "--tv must be a number of at least 0"),
        ("--edges", "nan", "--edges must be a number of at least 0"),
    ],
)
def test_a_search_that_cannot_be_is_refused_first(
    option: str, value: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "--out", str(tmp_path / "out"), option, value]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def quick(model: str, out: Path, *more: str) -> list[str]:
    """An audit of one cell."""
    choice = ["--defences", "none", "--attacks", "direct", "--pictures", "1", "--accuracy", "0"]
    return ["audit", "--models", model, *choice, "--out", str(out), *more]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--prior", "nowhere"], "there is no folder nowhere"),
        (["--prior", "EMPTY"], "at least 2"),
        (["--lpips", __file__], "cannot be read as weights"),
        (["--data", "nowhere"], "there is no folder nowhere"),
        (["--attacks", "direct", "telepathy"], "there is no attack 'telepathy'"),
        (["--attacks"], "at least one model, one defence, one attack"),
        (["--defences", "none", "hope"], "unknown defence 'hope'"),
        (["--models", "mini-cifar10-mjp", "./nowhere"], "there is no model './nowhere'"),
        (["--weights", "nowhere.pt", "--models", "mini-cifar10-mjp", "mini-cifar10-plain"], "of a single model"),
        (["--weights", "nowhere.pt", "--models", "timm:test_vit"], "there is no file of weights nowhere.pt"),
    ],
)
def test_everything_is_checked_before_a_cell_is_written(
    options: list[str], sentence: str, models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    options = [str(tmp_path / "empty") if word == "EMPTY" else word for word in options]
    assert main(quick(models[0], tmp_path / "out", *options)) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named_before_a_cell_is_written(
    models: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mjp.privacy.combination.find_spec", lambda name: None)
    assert main(quick(models[0], tmp_path / "out", "--defences", "none", "dp:0.1")) == 2
    assert "the defence dp needs the package opacus" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_second_audit_in_the_folder_is_refused(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hold_folder(tmp_path / "out") as is_ours:
        assert is_ours
        assert main(quick(models[0], tmp_path / "out")) == 2
        assert "another audit is running in" in capsys.readouterr().err
    assert main(quick(models[0], tmp_path / "out")) == 0


def test_json_is_the_results_file_and_nothing_else(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*quick(models[0], tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "results.json").read_text())


def test_without_a_terminal_progress_is_printed_in_lines(
    models: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mjp.common.progress.INTERVAL", 0.0)
    search = ("--attacks", "matching-blind", "--steps", "2", "--restarts", "0")
    assert main(quick(models[0], tmp_path, *search)) == 0
    error = capsys.readouterr().err
    assert "matching (blind): 50 % (1 of 2)" in error
    assert f"attacking {models[0]}: 100 % (1 of 1)" in error


def test_the_search_is_the_one_asked_for(models: list[str], tmp_path: Path) -> None:
    search = ["--attacks", "matching-blind", "--steps", "2", "--restarts", "1", "--objective", "l2", "--tv", "0"]
    common = ["audit", "--models", models[0], "--defences", "no-pe", "--pictures", "1", "--accuracy", "0"]
    assert main([*common, *search, "--out", str(tmp_path)]) == 0
    cell = json.loads((tmp_path / "cells.jsonl").read_text().splitlines()[2])
    facts = cell["findings"][1]["facts"]
    assert facts["starts"] == 2  # the mean picture, and one with noise
    row = json.loads((tmp_path / "results.json").read_text())["rows"][0]
    assert row["gain_permuted_psnr"]["attack"] == "matching-blind"
    assert main([*common, *search, "--objective", "cosine", "--out", str(tmp_path)]) == 2  # other cells than those


def test_an_exact_recovery_does_not_press_the_chart_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plt = pyplot()
    monkeypatch.setattr(plt, "close", lambda figure: None)
    rows = []
    for setting, psnr in (("a", 120.0), ("b", 20.0), ("c", 22.0)):
        attacks = {"guess": {"psnr": (13.0, 12.0, 14.0)}, "direct": {"psnr": (psnr, psnr - 1, psnr + 1)}}
        row = {"model": "m", "defence": "none" if setting == "a" else "mjp:0.5", "setting": setting}
        rows.append({**row, "best": "direct", "attacks": attacks})
    draw_audit(rows, tmp_path / "audit.png")
    figure = plt.gcf()
    (axis,), (legend,) = figure.axes, figure.legends
    monkeypatch.undo()
    plt.close(figure)
    assert axis.get_xlim()[1] < 70
    assert [text.get_text() for text in axis.texts] == ["→ 120"]
    whole, box = figure.bbox, legend.get_window_extent()
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1
