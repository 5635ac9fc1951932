"""The whole grid on a toy scale: cells, resume, shards, tables, verdicts, figures."""

import json
import os
import shutil
import signal
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

from mjp.cli.main import main
from mjp.common.errors import InputError
from mjp.common.runs.log import Log
from mjp.reproduce import command
from mjp.reproduce.cell import Place, compute, seconds_in_log
from mjp.reproduce.cell_file import read_cells
from mjp.reproduce.collect import values_of
from mjp.reproduce.scale_file import load_scale, scales
from mjp.reproduce.schedule import Shard, parse_shard, run_all

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cells of the toy but one, computed in this process."""
    folder = tmp_path_factory.mktemp("toy")
    place = Place("toy", folder, "embedded", None)
    for run, seed in (("A", 0), ("A", 1), ("J", 0)):
        assert compute(place, run, seed, CPU) > 0
    return folder


def test_a_grid_computes_what_is_missing_and_judges_every_claim(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in (folder / "cells").iterdir()}
    assert (
        main(["reproduce", "toy", "--data", "embedded", "--seeds", "0", "1", "--jobs", "1", "--out", str(folder)]) == 0
    )
    assert "1 cell to compute" in capsys.readouterr().out
    after = {path.name: path.read_bytes() for path in (folder / "cells").iterdir()}
    assert after.keys() - before.keys() == {"J-1.json"}
    assert all(after[name] == content for name, content in before.items())  # finished cells are never repeated
    results = json.loads((folder / "results.json").read_text())
    assert {claim["id"] for claim in results["claims"]} == {"consistency", "cost"}
    assert all(claim["verdict"] != "not run" for claim in results["claims"])
    assert [row["seeds"] for row in results["tables"]["variants"]["rows"]] == [2, 2]
    page = (folder / "results.md").read_text()
    assert "MJP is more consistent than plain" in page
    assert "(79.8)" in page  # the published figure beside ours
    assert main(["report", str(folder / "page.html"), str(folder)]) == 0
    assert "MJP is more consistent than plain" in (folder / "page.html").read_text()
    assert {path.name for path in folder.glob("*.png")} >= {"inference.png", "convergence.png", "positions.png"}


def test_outcomes_are_those_of_every_picture(folder: Path) -> None:
    cell = read_cells(folder, load_scale("toy"))["J"][0]
    right = values_of(cell, "top1")
    assert right is not None
    assert right.shape == (100,)
    consistency = values_of(cell, "consistency_uniform@0.5")
    assert consistency is not None
    assert consistency.shape == (100,)
    assert values_of(cell, "diff_norm_uniform@0.5") != values_of(cell, "diff_norm@0.5")  # another shuffle
    assert values_of(cell, "diff_norm_kept@0.5") != values_of(cell, "diff_norm@0.5")  # not told what was shuffled
    plain = read_cells(folder, load_scale("toy"))["A"][0]
    assert values_of(plain, "diff_norm_kept@0.5") == values_of(plain, "diff_norm@0.5")  # never told anything
    assert values_of(cell, "consistency@0.3") is None
    swept = values_of(cell, "consistency@0.25")
    assert swept is not None
    assert swept.shape == (50,)
    assert values_of(cell, "place_error") is not None


def test_a_cell_gives_the_same_twice(folder: Path, tmp_path: Path) -> None:
    compute(Place("toy", tmp_path, "embedded", None), "J", 0, CPU)
    cells = [json.loads((home / "cells" / "J-0.json").read_text()) for home in (folder, tmp_path)]
    assert cells[0]["outcomes"] == cells[1]["outcomes"]


def test_a_cell_that_was_interrupted_counts_the_epochs_before(tmp_path: Path) -> None:
    assert seconds_in_log(tmp_path, step_size=50) == 0  # a run that has not begun
    log = Log(tmp_path, tensorboard=False)
    log.write("epoch", 10, epoch=1, images_per_second=100.0)
    log.write("step", 15, images_per_second=1.0)  # an epoch that is computed again
    log.write("epoch", 20, epoch=2, images_per_second=50.0)
    assert seconds_in_log(tmp_path, step_size=50) == 10 * 50 / 100 + 10 * 50 / 50


def test_cells_of_other_settings_or_other_pictures_are_refused(folder: Path, tmp_path: Path) -> None:
    cell = json.loads((folder / "cells" / "A-0.json").read_text())
    (tmp_path / "cells").mkdir()
    changes: dict[str, dict[str, Any]] = {
        "trained with other settings": {"train": {**cell["train"], "epochs": 50}},
        "different numbers of pictures": {"outcomes": {**cell["outcomes"], "pictures": 99}},
        "is not a cell": {"train": None, "figures": None},
    }
    for sentence, change in changes.items():
        content = {name: value for name, value in {**cell, **change}.items() if value is not None}
        (tmp_path / "cells" / "A-0.json").write_text(json.dumps(content))
        (tmp_path / "cells" / "A-1.json").write_bytes((folder / "cells" / "A-1.json").read_bytes())
        with pytest.raises(InputError, match=sentence):
            read_cells(tmp_path, load_scale("toy"))


def test_cells_of_other_sources_are_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(folder / "cells", tmp_path / "cells")
    path = tmp_path / "cells" / "A-0.json"
    cell = json.loads(path.read_text())
    command = ["reproduce", "toy", "--out", str(tmp_path)]
    for name, words in (("pictures", "judged on other pictures"), ("checkpoint", "started from another checkpoint")):
        path.write_text(json.dumps({**cell, "sources": {**cell["sources"], name: "0123456789abcdef"}}))
        for arguments in (["--collect"], ["--data", "embedded", "--seeds", "0", "9"]):
            assert main([*command, *arguments]) == 2
            assert words in capsys.readouterr().err
    assert not (tmp_path / "results.json").exists()
    assert not (tmp_path / "runs").exists()  # refused before anything was computed
    path.write_text(json.dumps({name: value for name, value in cell.items() if name != "sources"}))
    assert main([*command, "--collect"]) == 0  # a cell from before sources were written down


def test_what_worked_is_collected_when_a_cell_fails(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder / "cells", tmp_path / "cells")

    def fail(*arguments: object, **options: object) -> None:
        raise InputError("1 of 1 cells failed")

    monkeypatch.setattr(command, "run_all", fail)
    assert main(["reproduce", "toy", "--data", "embedded", "--seeds", "0", "5", "--out", str(tmp_path)]) == 2
    assert (tmp_path / "results.json").is_file()


def test_the_grid_for_gpus_says_how_many_hours_they_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "imagenet", "--dry-run", "--seeds", "0", "1", "2"]) == 0
    assert "18,270 hours of one GPU (V100)" in capsys.readouterr().out


def test_dry_run_says_what_would_be_computed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "toy", "--seeds", "0", "7", "--jobs", "2", "--dry-run", "--out", str(folder)]) == 0
    output = capsys.readouterr().out
    assert "2 of 4 cells to compute, 2 at a time" in output


@pytest.mark.parametrize("name", scales())
def test_the_scales_of_the_package_are_complete(name: str) -> None:
    scale = load_scale(name)
    assert {cell.run.name for cell in scale.cells((0,))} == set(scale.runs)
    assert all(claim.table in scale.tables for claim in scale.claims)
    assert all(claim.baseline is None or claim.baseline in scale.runs for claim in scale.claims)


def test_shards_share_the_cells_and_leave_none_out() -> None:
    cells = load_scale("finetune").cells((0, 1, 2))
    shards = [Shard(index, 4).take(cells) for index in (1, 2, 3, 4)]
    assert sorted(cell.name for shard in shards for cell in shard) == sorted(cell.name for cell in cells)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0"])
def test_a_bad_shard_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--shard takes i/n"):
        parse_shard(text)


def fail(slot: int) -> float:
    raise InputError("this one cannot work")


def succeed(slot: int) -> float:
    return float(slot)


def wait_for_the_other(folder: Path, slot: int) -> float:
    """Leave a file named like the slot, and wait until there are two."""
    (folder / str(slot)).touch(exist_ok=False)
    while len(list(folder.iterdir())) < 2:
        time.sleep(0.01)
    return 0.0


def test_cells_that_run_at_the_same_time_have_different_slots(tmp_path: Path) -> None:
    tasks = {name: partial(wait_for_the_other, tmp_path) for name in ("first", "second")}
    run_all(tasks, jobs=2, minutes=1, say=lambda line: None)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}


def breathe(path: Path, slot: int) -> float:
    """A cell that takes for ever and shows that it is alive."""
    while True:
        path.touch()
        time.sleep(0.05)


def start_breathing(path: Path) -> None:
    run_all({"only": partial(breathe, path)}, jobs=1, minutes=1, say=lambda line: None)


def test_a_killed_grid_leaves_no_cell_behind(tmp_path: Path) -> None:
    breath = tmp_path / "breath"
    grid = get_context("spawn").Process(target=start_breathing, args=(breath,))
    grid.start()
    while not breath.exists():
        time.sleep(0.05)
    grid.kill()  # the grid has no chance to tell its cells
    grid.join()
    deadline = time.time() + 60
    while time.time() - breath.stat().st_mtime < 2:
        assert time.time() < deadline
        time.sleep(0.1)


def test_a_cell_that_fails_does_not_stop_the_others() -> None:
    lines: list[str] = []
    with pytest.raises(InputError, match="1 of 2 cells failed, first first: this one cannot work"):
        run_all({"first": fail, "second": succeed}, jobs=1, minutes=1, say=lines.append)
    assert any(line.startswith("second done") for line in lines)


def start_and_interrupt(path: Path) -> None:
    """Interrupt the grid alone, as a notebook does: its cells get no signal."""

    def interrupt() -> None:
        while not path.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    Thread(target=interrupt, daemon=True).start()
    try:
        start_breathing(path)
    except KeyboardInterrupt:
        os._exit(7)


def test_an_interrupted_grid_ends_its_cells(tmp_path: Path) -> None:
    breath = tmp_path / "breath"
    grid = get_context("spawn").Process(target=start_and_interrupt, args=(breath,))
    grid.start()
    grid.join(120)
    assert grid.exitcode == 7
    time.sleep(0.5)
    before = breath.stat().st_mtime
    time.sleep(0.5)
    assert breath.stat().st_mtime == before


def stumble(slot: int) -> float:
    return [1.0][slot + 1]


def test_a_bug_in_a_cell_leaves_its_traceback() -> None:
    lines: list[str] = []
    with pytest.raises(InputError, match="1 of 1 cells failed"):
        run_all({"only": stumble}, jobs=1, minutes=1, say=lines.append)
    assert "in stumble" in lines[-1]


def die(slot: int) -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def test_a_cell_that_is_killed_does_not_stop_the_others() -> None:
    lines: list[str] = []
    with pytest.raises(InputError, match="1 of 3 cells failed, first first: its process was killed"):
        run_all({"first": die, "second": succeed, "third": succeed}, jobs=2, minutes=1, say=lines.append)
    assert {line.split()[0] for line in lines if " done in " in line} == {"second", "third"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "there is no scale 'nowhere'"),
        (["toy"], "needs --data DIR"),
        (["toy", "--data", "nowhere"], "there is no folder nowhere/train"),
        (["scratch", "--data", "embedded"], "name a folder with --scenes DIR"),
        (["scratch", "--data", "embedded", "--scenes", "nowhere"], "--scenes: there is no folder nowhere"),
        (["finetune", "--data", "embedded"], "needs --checkpoint FILE"),
        (["toy", "--only", "nothing"], "there is no table nothing"),
        (["toy", "--collect"], "there are no cells in"),
        (["toy", "--shard", "5/4"], "--shard takes i/n"),
        (["toy", "--jobs", "0"], "--jobs must be a whole number of at least 1"),
        (["toy", "--seeds", "0", "0"], "--seeds takes one seed or more, each once"),
        (["toy", "--seeds", "-1"], "--seeds must be a whole number"),
    ],
)
def test_bad_input_gets_a_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
