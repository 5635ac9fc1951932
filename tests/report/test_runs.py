"""Results folders: found where they usually are, refused by name when something is wrong."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import tyro

from mjp.cli import eval as evaluation
from mjp.cli import study
from mjp.common.errors import InputError
from mjp.report.page import render
from mjp.report.runs import collect, describe
from mjp.report.sections.making import command
from report.folders import evaluated, point, write_eval, write_study


def report(*folders: Path) -> str:
    return render(collect(folders), title="title")


def test_without_folders_those_of_a_known_kind_are_taken(tmp_path: Path) -> None:
    write_eval(tmp_path / "eval")
    write_study(tmp_path / "study")
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "results.json").write_text('{"model": "of another command"}')
    (tmp_path / "run").mkdir()
    assert [run.folder.name for run in collect(usual=tmp_path)] == ["eval", "study"]


def test_a_folder_named_twice_is_shown_once(tmp_path: Path) -> None:
    folder = write_eval(tmp_path / "eval")
    assert len(collect([folder, folder])) == 1


def test_no_results_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run `mjp eval MODEL...` and `mjp study MODEL...` first"):
        collect(usual=tmp_path / "out")


@pytest.mark.parametrize("text", ["{", "[1, 2]", "\\", '{"kind": "demo"}', '{"kind": "eval"}', '{"kind": ["eval"]}'])
def test_foreign_and_broken_files_are_named(text: str, tmp_path: Path) -> None:
    folder = write_eval(tmp_path / "eval")
    (folder / "results.json").write_text(text)
    with pytest.raises(InputError, match=r"eval/results\.json"):
        collect([folder])


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    folder = write_eval(tmp_path / "eval")
    (folder / "results.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"eval/results\.json is not UTF-8 text"):
        collect(usual=tmp_path)


def test_folders_that_are_not_there_or_empty_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        collect([tmp_path / "nowhere"])
    with pytest.raises(InputError, match=r"there is no results.json in .*"):
        collect([tmp_path])


@pytest.mark.parametrize(
    ("models", "lacking"),
    [
        ({"m": {}}, "KeyError: 'points'"),
        ({"m": 3}, "TypeError"),
        ({"m": evaluated(points=[])}, "ValueError"),
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
        with pytest.raises(InputError, match=f"{name} is not a whole PNG picture"):
            report(folder)
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"there is no picture .*{name}: run mjp study again"):
        report(folder)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        (evaluation, ["a b", "c", "--ratios", "0.1", "1", "--limit", "7", "--out", "some where"]),
        (evaluation, ["it's"]),
        (study, ["m", "--pictures", "x.png", "y z.png", "--seed", "4"]),
    ],
)
def test_the_command_on_the_page_means_the_same(module: Any, arguments: list[str]) -> None:
    """tyro reads the options of the printed command as those of the run, after a trip through JSON."""
    options = tyro.cli(module.Options, args=arguments)
    kind = module.__name__.rpartition(".")[2]
    settings = json.loads(json.dumps(describe(kind, options)))["settings"]
    words = shlex.split(command(kind, settings).replace("\\\n", ""))
    assert words[:2] == ["mjp", kind]
    assert tyro.cli(module.Options, args=words[2:]) == options
