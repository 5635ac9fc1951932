"""The section on retrieval: every scorer and seed, which ratio is which, a curve that says when it means nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from mjp.aladin.evaluate.seeds import over_seeds
from mjp.common.errors import InputError
from mjp.report.page import render
from mjp.report.runs import collect
from mjp.report.sections import KINDS
from report.folders import Page, masking, retrieval, write_bench, write_eval, write_retrieval

HOSTILE = "<script>alert('x')</script>"


def page(*folders: Path) -> Page:
    return Page(render(collect(folders, kinds=KINDS), title="Retrieval"))


def test_it_stands_alone_and_among_the_others(tmp_path: Path) -> None:
    evaluated, timed = write_retrieval(tmp_path / "a"), write_bench(tmp_path / "b")
    for folders in ((evaluated,), (timed,), (evaluated, timed)):
        assert [part["id"] for part in page(*folders).all("section")] == ["retrieval", "making"]
    beside = [part["id"] for part in page(write_eval(tmp_path / "c"), evaluated).all("section")]
    assert beside == ["summary", "accuracy", "retrieval", "comparison", "making"]


def test_every_scorer_has_its_figures(tmp_path: Path) -> None:
    text = page(write_retrieval(tmp_path / "a")).text
    assert "1,000 pictures and 5,000 captions of /data/flickr8k, split test" in text
    assert (
        "out/d-0: distill, distill+infonce alignment 11.9 / 33.6 / 46.0 9.8 / 27.8 / 38.4 160.0 [158.0, 162.0] – –"
        in text
    )
    assert "vector 11.9 / 33.6 / 46.0 9.8 / 27.8 / 38.4 152.0 [150.0, 154.0] 95.0 -8.0 [-10.0, -6.0]" in text
    assert "61.0 / 62.0 – / 63.5 51 / 64" in text  # NDCG by ROUGE-L and by people, top 10
    assert "two-stage, K = 20" in text
    assert "K was chosen on dev" in text
    assert "which takes several seeds" in text


def test_seeds_are_summed_up_before_the_single_runs(tmp_path: Path) -> None:
    """Of 160 and 170: mean 165, standard deviation √50."""
    models = {"out/d-0": retrieval(160.0, 0), "out/d-1": retrieval(170.0, 1)}
    text = page(write_retrieval(tmp_path / "a", models, seeds=over_seeds(models))).text
    together, single = (
        text.index("out/d-*: distill, distill+infonce; mean ± standard deviation"),
        text.index("out/d-0:"),
    )
    assert together < single
    assert "165.0 ± 7.1 –" in text[together:single]
    assert "156.8 ± 6.7 95.0 ± 0.0 – 61.0 / 62.0 – / 63.5 51 / 64" in text[together:single]
    assert "standard deviation between seeds" in text


def test_folds_have_rows_and_what_retains_nothing_a_dash(tmp_path: Path) -> None:
    """Of 260 and 270: mean 265, standard deviation √50."""
    models = {"out/d-0": retrieval(160.0, 0), "out/d-1": retrieval(170.0, 1)}
    for rsum, model in zip((260.0, 270.0), models.values(), strict=True):
        fold = {"size": 1000, "i2t": [20.0, 40.0, 60.0], "t2i": [10.0, 30.0, 50.0], "rsum": rsum}
        for scorer in model["scorers"].values():
            scorer |= {"folds": fold, "retention_percent": None}
    text = page(write_retrieval(tmp_path / "a", models, seeds=over_seeds(models))).text
    dashes = " – – – – –"  # of alignment, difference, NDCG twice, top 10
    for scorer in ("alignment", "vector", "two-stage"):
        assert f"{scorer}, galleries of 1,000 20.0 / 40.0 / 60.0 10.0 / 30.0 / 50.0 265.0 ± 7.1{dashes}" in text
        assert f"{scorer}, galleries of 1,000 20.0 / 40.0 / 60.0 10.0 / 30.0 / 50.0 260.0{dashes}" in text
    assert "156.8 ± 6.7 – – 61.0" in text
    assert "152.0 [150.0, 154.0] – -8.0 [-10.0, -6.0]" in text


def test_a_model_without_vectors_has_one_row_alone_and_among_its_seeds(tmp_path: Path) -> None:
    models = {"out/a-0": retrieval(160.0, 0), "out/a-1": retrieval(170.0, 1)}
    for kind in ("scorers", "ndcg25"):
        models["out/a-1"][kind] = {"alignment": models["out/a-1"][kind]["alignment"]}
    assert set(over_seeds(models)[0]["scorers"]) == {"alignment"}
    text = page(write_retrieval(tmp_path / "a", models, seeds=over_seeds(models))).text
    together, single = text.index("out/a-*:"), text.index("out/a-0:")
    assert "165.0 ± 7.1" in text[together:single]
    assert "vector" not in text[together:single]
    assert "two-stage, K" not in text[text.index("out/a-1:") :]


@pytest.mark.parametrize("opened", [True, False])
def test_the_curve_comes_with_its_verdict(tmp_path: Path, opened: bool) -> None:
    found = page(write_retrieval(tmp_path / "a", {"m": retrieval(40.0, masking=masking(opened=opened))}))
    assert f"the curve means {'something' if opened else 'nothing'}" in found.text
    assert "0 no jigsaw 37.5 [35.5, 39.5] 0.0 [0.0, 0.0]" in found.text
    assert "0.27 E_unk 30.0 [28.0, 32.0] -7.5 [-9.5, -5.5]" in found.text
    assert "1 positions kept 30.0" in found.text
    assert len(found.all("img")) == 1


def test_without_a_curve_there_is_no_picture(tmp_path: Path) -> None:
    folder = write_retrieval(tmp_path / "a")
    (folder / "masking.png").unlink()
    assert page(folder).all("img") == []


@pytest.mark.parametrize("command", ["bench", "eval"])
def test_times_and_bytes(tmp_path: Path, command: str) -> None:
    folder = write_bench(tmp_path / "a")
    if command == "eval":
        timed, folder = json.loads((folder / "results.json").read_text())["models"], write_retrieval(tmp_path / "b")
        facts = json.loads((folder / "results.json").read_text())
        (folder / "results.json").write_text(json.dumps(facts | {"latency": timed}))
        (tmp_path / "a" / "latency.png").rename(folder / "latency.png")
    text = page(folder).text
    assert "Scoring alone: 12 times as long." in text
    assert "exhaustive alignment, tokens in memory 18.00 p95 19.00 –" in text
    assert "index, MB 13.0 1,300.0 for each picture, kB 13.0 13.0" in text
    assert "a cross-encoder over its vector" in text


def test_the_commands_can_be_given_again(tmp_path: Path) -> None:
    text = page(write_retrieval(tmp_path / "a"), write_bench(tmp_path / "b")).text
    assert "mjp aladin eval out/d-0 out/d-1 \\ --data /data/flickr8k" in text
    assert "mjp aladin bench \\ --model aladin-flickr8k \\ --sizes 1000 100000 \\ --no-json" in text


def test_a_hostile_name_is_text(tmp_path: Path) -> None:
    models = {HOSTILE: retrieval(40.0, masking=masking())}
    found = page(write_retrieval(tmp_path / "a", models), write_bench(tmp_path / "b", HOSTILE))
    assert found.all("script") == []
    assert HOSTILE in found.text


def test_labels_of_several_runs_differ(tmp_path: Path) -> None:
    models: dict[str, Any] = {name: retrieval(40.0, masking=masking()) for name in ("m", "n")}
    found = page(write_retrieval(tmp_path / "a", models), write_bench(tmp_path / "b"))
    labels = [div["aria-label"] for div in found.all("div") if div.get("role") == "region"]
    assert len(labels) == len(set(labels))


def test_a_file_that_lacks_something_is_named(tmp_path: Path) -> None:
    model = retrieval(40.0)
    del model["scorers"]["vector"]["rsum_interval"]
    with pytest.raises(InputError, match=r"results\.json is not as this mjp aladin eval writes it"):
        page(write_retrieval(tmp_path / "a", {"m": model}))


def labels(share: float) -> dict[str, Any]:
    values = {key: {"mean": share, "low": share - 0.05, "high": share + 0.05} for key in ("p5", "p10", "r1", "map")}
    asked = {"queries": 10, "possible": {"p5": 1.0, "p10": 0.9}, "chance": 0.1, "scorers": {"vector": values}}
    return {"folder": "/data/animals", "pictures": 200, "classes": 10, "name": asked, "kind": {**asked, "queries": 4}}


def test_what_names_of_classes_find_stands_beside_recall(tmp_path: Path) -> None:
    models = {"out/d-0": retrieval(160.0, 0, labels=labels(0.5)), "out/d-1": retrieval(170.0, 1, labels=labels(0.6))}
    text = page(write_retrieval(tmp_path / "a", models, seeds=over_seeds(models))).text
    assert (
        "10 queries by the name of a class, “a photo of a CLASS”: 200 pictures of 10 classes in /data/animals" in text
    )
    assert "4 queries by an everyday word for several classes, “a dog”" in text
    assert "vector 55.0 ± 7.1 55.0 ± 7.1 55.0 ± 7.1 55.0 ± 7.1" in text
    assert "out/d-0 vector 50.0 [45.0, 55.0]" in text
    assert "A random order has 10.0 %" in text


def test_labels_alone_make_a_section(tmp_path: Path) -> None:
    models = {"out/d-0": {"hash": "0", "training": None, "labels": labels(0.5)}}
    text = page(write_retrieval(tmp_path / "a", models, seeds=over_seeds(models))).text
    assert "200 pictures of 10 classes" in text
    assert "captions of" not in text


def test_a_trained_backbone_is_named(tmp_path: Path) -> None:
    folder = write_retrieval(tmp_path / "a")
    assert "backbone trained" not in page(folder).text
    results = json.loads((folder / "results.json").read_text())
    results["models"]["out/d-0"]["backbone_trained"] = True
    (folder / "results.json").write_text(json.dumps(results))
    assert "out/d-0: distill, distill+infonce, backbone trained" in page(folder).text
