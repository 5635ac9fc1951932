"""Results folders: found where they usually are, refused by name when something is wrong."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import tyro

from mjp.cli import eval as evaluation
from mjp.cli import federate, reproduce, segment, study
from mjp.common.errors import InputError
from mjp.common.results import make_results
from mjp.report.page import render
from mjp.report.runs import collect
from mjp.report.sections import KINDS
from mjp.report.sections.making import command
from report.folders import evaluated, picture, point, write_eval, write_study


def report(*folders: Path) -> str:
    return render(collect(folders, kinds=KINDS), title="title")


def test_without_folders_those_of_a_known_kind_are_taken(tmp_path: Path) -> None:
    write_eval(tmp_path / "eval")
    write_study(tmp_path / "study")
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "results.json").write_text('{"model": "of another command"}')
    (tmp_path / "run").mkdir()
    assert [run.folder.name for run in collect(kinds=KINDS, usual=tmp_path)] == ["eval", "study"]


def test_a_folder_named_twice_is_shown_once(tmp_path: Path) -> None:
    folder = write_eval(tmp_path / "eval")
    assert len(collect([folder, folder], kinds=KINDS)) == 1


def test_no_results_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run `mjp eval MODEL...` first"):
        collect(kinds=KINDS, usual=tmp_path / "out")


@pytest.mark.parametrize("text", ["{", "[1, 2]", "\\", '{"kind": "demo"}', '{"kind": "eval"}', '{"kind": ["eval"]}'])
def test_foreign_and_broken_files_are_named(text: str, tmp_path: Path) -> None:
    folder = write_eval(tmp_path / "eval")
    (folder / "results.json").write_text(text)
    with pytest.raises(InputError, match=r"eval/results\.json"):
        collect([folder], kinds=KINDS)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    folder = write_eval(tmp_path / "eval")
    (folder / "results.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"eval/results\.json is not UTF-8 text"):
        collect(kinds=KINDS, usual=tmp_path)


def test_folders_that_are_not_there_or_empty_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        collect([tmp_path / "nowhere"], kinds=KINDS)
    with pytest.raises(InputError, match=r"there is no results.json in .*"):
        collect([tmp_path], kinds=KINDS)


@pytest.mark.parametrize(
    ("models", "lacking"),
    [
        ({"m": {}}, "KeyError: 'pictures'"),
        ({"m": 3}, "TypeError"),
        ({"m": evaluated(top1=[0.1, 0.2])}, "ValueError"),
        ({"m": evaluated(points=[{**point(0.5, False), "consistency": "high"}])}, "ValueError"),
        ({"m": evaluated(robustness={"corruptions": {"errors": {}}})}, "KeyError: 'source'"),
    ],
)
def test_a_file_that_lacks_something_is_named(models: Any, lacking: str, tmp_path: Path) -> None:
    folder = write_eval(tmp_path / "eval", models)
    with pytest.raises(InputError, match=rf"eval/results\.json is not as this mjp eval writes it \({lacking}"):
        report(folder)


@pytest.mark.parametrize("name", ["positions-2.png", "attention.png"])
def test_a_picture_that_is_missing_or_broken_is_named(name: str, tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study")
    content = (folder / name).read_bytes()
    for broken in (content[: len(content) // 2], b"no picture"):
        (folder / name).write_bytes(broken)
        with pytest.raises(InputError, match=f"{name} is not a complete PNG picture"):
            report(folder)
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"there is no picture .*{name}: run mjp study again"):
        report(folder)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        (evaluation, ["a b", "c", "--ratios", "0.1", "1", "--limit", "7", "--out", "some where"]),
        (evaluation, ["it's"]),
        (evaluation, ["m", "--ratios", "--corrupt"]),
        (study, ["m", "--pictures", "x.png", "y z.png", "--seed", "4"]),
        (segment, ["--data", "cam vid", "--checkpoint", "out/swin", "--model-kwargs", "depths=(1, 1)", "--seed", "3"]),
        (reproduce, ["scratch", "--data", "some where", "--seeds", "0", "4", "--shard", "1/2"]),
        (federate, ["--defences", "none", "mjp:0.27+batch:8", "--rounds", "2"]),
    ],
)
def test_the_command_on_the_page_means_the_same(module: Any, arguments: list[str]) -> None:
    """tyro reads the options of the printed command as those of the run, after a trip through JSON."""
    options = tyro.cli(module.Options, args=arguments)
    kind = module.__name__.rpartition(".")[2]
    settings = json.loads(make_results(kind, options, {}).to_json())["settings"]
    words = shlex.split(command(kind, settings).replace("\\\n", ""))
    assert words[:2] == ["mjp", kind]
    assert tyro.cli(module.Options, args=words[2:]) == options


NEWER = {"train", "segment", "attack-update", "reproduce", "federate"}  # kinds that came with the schema
BEFORE = sorted((Path(__file__).parent / "before_schema").glob("*.json"))


@pytest.mark.parametrize("path", BEFORE, ids=lambda path: path.stem)
def test_results_from_before_the_schema_still_render(path: Path, tmp_path: Path) -> None:
    """Written by the commands before results.json had a schema number; their pictures are replaced by blank ones."""
    shutil.copy(path, tmp_path / "results.json")
    names = ("sweep", "robustness", "corruptions", "positions-1", "positions-2", "attention", "attack", "audit")
    for name in (*names, "latency", "masking"):
        picture(tmp_path / f"{name}.png")
    page = report(tmp_path)
    assert f"mjp {json.loads(path.read_text())['kind']}" in page
    assert "<table" in page
    assert 'prefers-color-scheme: dark)" srcset' not in page  # older pictures have no dark version


def test_there_is_an_old_file_of_every_kind_with_a_section() -> None:
    assert {json.loads(path.read_text())["kind"] for path in BEFORE} >= set(KINDS) - NEWER


def test_accuracy_alone_is_in_the_summary(tmp_path: Path) -> None:
    page = report(write_eval(tmp_path / "eval", {"m": evaluated(points=[])}))
    assert "38.7" in page
    assert 'id="accuracy"' not in page


def write_run(folder: Path, values: list[float], **settings: object) -> Path:
    folder.mkdir(parents=True)
    lines = [
        {"kind": "epoch", "step": 10 * k, "epoch": k, "train_loss": 1.0, "val_top1": v} for k, v in enumerate(values, 1)
    ]
    steps = [{"kind": "step", "step": 1, "loss": 2.3}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps + lines) + '{"kind": "ep')
    (folder / "config.yaml").write_text(json.dumps({"model": "deit_tiny", "preset": "paper", **settings}))
    return folder


def test_training_runs_share_one_figure_with_a_dark_version(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, [20.0, 61.5, last], epochs=9) for name, last in (("a", 70.25), ("b", 71.5))]
    page = report(*runs)
    assert page.count("<img ") == page.count("<source media") == 1
    assert "zoomed above 60" in page
    assert "70.25" in page
    assert "71.50" in page
    assert page.count("3 of 9") == 2
    assert "mjp train --recipe" in page


def test_a_run_that_never_reaches_the_zoom_is_zoomed_lower(tmp_path: Path) -> None:
    page = report(write_run(tmp_path / "run", [10.0, 30.0, 40.0]))
    assert "zoomed above 31" in page


def test_a_run_that_was_just_started_is_named_without_figures(tmp_path: Path) -> None:
    page = report(write_run(tmp_path / "run", []))
    assert "<img " not in page
    assert "deit_<wbr>tiny" in page


def test_pictures_bring_their_dark_version(tmp_path: Path) -> None:
    folder = write_eval(tmp_path / "eval")
    picture(folder / "sweep-dark.png")
    page = report(folder)
    assert '<source media="(prefers-color-scheme: dark)" srcset="data:image/png;base64,' in page
