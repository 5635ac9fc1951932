"""Runs of one family: found by how they were trained, summed up by hand."""

from pathlib import Path
from typing import Any

import pytest

from aladin.tiny import settings
from mjp.aladin.evaluate.seeds import over_seeds, training_of
from mjp.aladin.evaluate.tables import seed_table


def run(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        settings(folder.parent / "data", folder.parent, out=folder, **changes).to_yaml()
    )
    return folder


def family(folder: Path) -> str:
    found = training_of(folder)
    assert found is not None
    return str(found["family"])


def test_a_family_differs_in_its_seed_and_in_what_changes_no_result(tmp_path: Path) -> None:
    first = family(run(tmp_path / "a", seed=0))
    assert first == family(run(tmp_path / "b", seed=1, workers=3, cache=tmp_path / "elsewhere"))
    assert first == family(tmp_path / "a" / "model")
    assert first != family(run(tmp_path / "c", seed=0, epochs=3))
    assert first != family(run(tmp_path / "d", seed=0, model={"align_width": 4}))


def test_a_student_belongs_to_the_family_of_its_teacher(tmp_path: Path) -> None:
    teachers = [run(tmp_path / f"t{seed}", seed=seed) for seed in (0, 1)]
    other = run(tmp_path / "t2", seed=0, epochs=5)
    students = [
        run(tmp_path / f"s{k}", phase="distill", seed=k, teacher=teacher)
        for k, teacher in enumerate([*teachers, other])
    ]
    assert family(students[0]) == family(students[1]) != family(students[2])
    assert family(students[0]) != family(run(tmp_path / "x", phase="distill", teacher=tmp_path / "gone"))
    assert family(students[0]) != family(run(tmp_path / "y", phase="distill", teacher=teachers[0], objective="infonce"))


def test_a_continued_run_belongs_to_the_family_of_its_start(tmp_path: Path) -> None:
    starts = [run(tmp_path / f"t{seed}", seed=seed) for seed in (0, 1)] + [run(tmp_path / "t2", seed=0, epochs=5)]
    ends = [run(tmp_path / f"s{k}", phase="classes", seed=k, init=start) for k, start in enumerate(starts)]
    assert family(ends[0]) == family(ends[1]) != family(ends[2])


def test_a_model_without_its_run_belongs_to_no_family(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("- not: a run")
    assert training_of(tmp_path) is None
    assert training_of(tmp_path / "nowhere") is None
    (tmp_path / "config.yaml").write_text("{")
    assert training_of(tmp_path) is None


def facts(seed: int, rsum: float, *, family: str = "f") -> dict[str, Any]:
    scorer = {"i2t": [rsum / 10] * 3, "t2i": [1.0, 2.0, 3.0], "rsum": rsum, "retention_percent": 2 * rsum, "k": 5}
    return {
        "training": {"phase": "distill", "objective": "infonce", "seed": seed, "family": family},
        "scorers": {"alignment": scorer, "vector": {**scorer, "overlap10": {"i2t": 50.0, "t2i": rsum}}},
        "ndcg25": {"alignment": {"rouge_l": {"i2t": rsum, "t2i": None}}},
    }


def test_mean_and_standard_deviation_by_hand() -> None:
    """Of 10, 20 and 60: mean 30, deviation √((400 + 100 + 900) / 2) = √700."""
    models = {f"out/run-{seed}/x": facts(seed, rsum) for seed, rsum in enumerate((10.0, 20.0, 60.0))}
    models["lone"] = facts(0, 5.0, family="other")
    models["nobody's"] = {**facts(0, 5.0), "training": None}
    models["out/again"] = facts(2, 60.0)  # the same run under another name
    (found,) = over_seeds(models)
    assert (found["name"], found["seeds"], found["models"]) == ("out/run-*/x", [0, 1, 2], list(models)[:3])
    rsum = found["scorers"]["vector"]["rsum"]
    assert (rsum["mean"], rsum["sd"]) == (30, pytest.approx(700**0.5))
    assert found["scorers"]["vector"]["i2t"][2]["mean"] == pytest.approx(3)
    assert found["scorers"]["vector"]["overlap10"]["t2i"]["mean"] == 30
    assert found["ndcg25"]["alignment"]["rouge_l"]["t2i"] is None
    assert "k" not in found["scorers"]["vector"]
    shown = seed_table(found)
    assert "30.0 ± 26.5" in shown
    assert "3 seeds (0, 1, 2)" in shown


def test_one_seed_has_no_deviation() -> None:
    assert over_seeds({"a": facts(0, 1.0), "b": facts(0, 2.0)}) == []
