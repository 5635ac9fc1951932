"""The page: complete, honest about its numbers, safe with names, readable without eyes."""

import base64
import re
from itertools import pairwise
from pathlib import Path

import pytest

from mjp.report.page import breakable, render
from mjp.report.runs import collect
from mjp.report.sections import KINDS
from report.folders import CORRUPTIONS, Page, evaluated, write_eval, write_segment, write_study

HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&amp;"
ROBUST = evaluated(robustness={"corruptions": CORRUPTIONS})


def page(*folders: Path) -> Page:
    return Page(render(collect(folders, kinds=KINDS), title="Two models"))


@pytest.fixture
def whole(tmp_path: Path) -> Page:
    return page(
        write_eval(tmp_path / "eval", {"plain": evaluated(unknown=False), "mjp": ROBUST}), write_study(tmp_path / "s")
    )


def test_every_section_is_there_in_its_order(whole: Page) -> None:
    order = ["summary", "accuracy", "robustness", "positions", "attention", "comparison", "making"]
    assert [section["id"] for section in whole.all("section")] == order
    assert [link["href"] for link in whole.all("a")] == ["#content", *(f"#{name}" for name in order)]


def test_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    evaluation = page(write_eval(tmp_path / "eval"))
    study = page(write_study(tmp_path / "study", attention=[]))
    assert [s["id"] for s in evaluation.all("section")] == ["summary", "accuracy", "comparison", "making"]
    assert [s["id"] for s in study.all("section")] == ["summary", "positions", "comparison", "making"]
    assert "Consistency" not in study.text


def test_numbers_are_those_of_the_results_with_their_intervals(whole: Page) -> None:
    assert "38.7 [32.9, 44.0]" in whole.text
    consistency = whole.text.split("Consistency, %, by mask ratio")[1]
    assert "mjp positions kept 90.0 [88.0, 92.0]" in consistency
    assert "mjp E_unk 97.1 [96.0, 98.2]" in consistency
    assert "0.200 [0.190, 0.210]" in whole.text  # feature shift
    assert "1.50 ± 0.23" in whole.text
    assert "1,234 embedded CIFAR-10 pictures, 2 draws" in whole.text
    assert "seed 7" in whole.text
    assert "± is the standard deviation between 5 folds, seed 3" in whole.text


def test_the_error_of_knowing_nothing(whole: Page) -> None:
    """By hand on 8 × 8: the mean of |k − 31.5| over 64 patches is 16, that of |k − 3.5| over 8 rows is 2."""
    assert "8 × 8 10.49 ± 0.87 16.00 1.50 ± 0.23 2.00 36" in whole.text


def test_published_figures_stand_beside_ours_with_the_difference_in_scale(whole: Page) -> None:
    beside = whole.text.split("The scale is different")[1]
    assert "only the direction of a change can" in beside
    assert "published: ImageNet-1k, 224 px, 300 epochs DeiT-S 79.8 64.3 16.21 DeiT-S + MJP 80.5 82.9 8.96" in beside
    assert "mjp E_unk, γ = 0.5 38.7 [32.9, 44.0] 97.1 [96.0, 98.2] 2.00 [1.90, 2.10]" in beside
    assert "mjp 8 × 8 patches 10.487 ± 0.867 1.498 ± 0.231" in beside
    for oddity in ("is not stated in the paper", "no variance is published", "14 × 14", "43.24; the table prints 41.5"):
        assert oddity in beside


def test_segmentation_runs_stand_beside_each_other_and_the_published_ones(tmp_path: Path) -> None:
    content = page(write_segment(tmp_path / "a"), write_segment(tmp_path / "b", "out/swin-plain"))
    assert [s["id"] for s in content.all("section")] == ["segmentation", "comparison", "making"]
    assert "out/swin-paper 53.1 [51.0, 55.2] 64.1 [62.0, 66.0] 80.0 [79.0, 81.0] 675 5 swin_tiny" in content.text
    assert "sky 81.2 81.2 road 70.0 70.0" in content.text
    assert "bicyclist" not in content.text  # no pixel of it in these pictures
    beside = content.text.split("The scale is different")[1]
    assert "Swin-T 43.87 55.22 Swin-T + MJP 44.03 55.50" in beside
    assert "out/swin-plain swin_tiny_patch4_window7_224 53.1 [51.0, 55.2] 64.1 [62.0, 66.0]" in beside
    assert "not that it helps" in beside


def test_robustness_is_shown_with_dashes_for_what_is_missing(whole: Page) -> None:
    assert "mjp 60.0 [50.0, 70.0] – – – –" in whole.text
    assert "fog 60.0 [55.0, 65.0] snow –" in whole.text
    assert "they are not ImageNet-C" in whole.text
    assert "mjp corruptions: generated – – – –" in whole.text.split("The scale is different")[1]


def test_robustness_without_intervals_is_shown_as_well(tmp_path: Path) -> None:
    found = {"corruptions": {"source": "/c", "errors": {"fog": [0.5, 0.7]}, "mce": 0.546, "mce_unnormalised": 0.4}}
    shown = page(write_eval(tmp_path / "eval", {"m": evaluated(robustness=found)})).text
    assert "m 40.0 54.6 – – –" in shown
    assert "fog 60.0" in shown


def test_a_hostile_name_is_text(tmp_path: Path) -> None:
    shown = page(
        write_eval(tmp_path / "eval", {HOSTILE: ROBUST}, data=HOSTILE), write_study(tmp_path / "study", (HOSTILE,))
    )
    assert shown.all("script") == []
    assert all(image["src"].startswith("data:image/png;base64,") for image in shown.all("img"))
    assert not any(name.startswith("on") for _, attributes in shown.tags for name in attributes)
    assert HOSTILE in shown.text
    assert HOSTILE in shown.all("img")[0]["alt"]


def test_a_name_can_be_broken_and_stays_escaped() -> None:
    assert breakable("a/<b>-c") == "a/<wbr>&lt;b&gt;-<wbr>c"


def test_nothing_comes_from_elsewhere(whole: Page) -> None:
    for tag, attributes in whole.tags:
        for name in ("src", "href", "srcset", "action", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, name)
    assert "url(" not in whole.style
    assert "@import" not in whole.style
    assert {"script", "iframe", "object"}.isdisjoint(tag for tag, _ in whole.tags)


def test_pictures_are_the_files_and_say_what_they_show(tmp_path: Path) -> None:
    folders = write_eval(tmp_path / "eval"), write_study(tmp_path / "study")
    images = page(*folders).all("img")
    assert len(images) == 4  # sweep, positions of two models, attention
    assert base64.b64decode(images[0]["src"].partition(",")[2]) == (folders[0] / "sweep.png").read_bytes()
    assert all((image["width"], image["height"]) == ("1200", "400") for image in images)
    assert all(len(image["alt"]) > 40 for image in images)
    assert "plain, mjp" in images[0]["alt"]
    assert "of plain:" in images[1]["alt"]
    assert "of mjp:" in images[2]["alt"]
    assert "every head of plain, mjp" in images[3]["alt"]


def test_tables_have_captions_scopes_and_a_place_to_scroll(whole: Page) -> None:
    names = [tag for tag, _ in whole.tags]
    assert names.count("table") == names.count("caption") >= 8
    assert {th.get("scope") for th in whole.all("th")} == {"col", "row", "rowgroup"}
    for number, name in enumerate(names):
        if name == "table":
            container = whole.tags[number - 1][1]
            assert (container["role"], container["tabindex"]) == ("region", "0")
    labels = [div["aria-label"] for div in whole.all("div") if div.get("role") == "region"]
    assert len(labels) == len(set(labels))


def test_headings_never_skip_a_level(whole: Page) -> None:
    levels = [int(tag[1]) for tag, _ in whole.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))


def test_language_viewport_title_and_skip_link(whole: Page) -> None:
    assert whole.all("html")[0]["lang"] == "en-GB"
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in whole.all("meta")
    assert whole.all("a")[0] == {"class": "skip", "href": "#content"}
    assert whole.all("main")[0]["id"] == "content"


def test_one_model_on_two_data_sets_has_two_rows(tmp_path: Path) -> None:
    folders = [write_eval(tmp_path / name, {"m": evaluated()}, data=f"/data/{name}") for name in ("a", "b")]
    summary = page(*folders).text.split("headline numbers")[1]
    assert "1,234 /data/a" in summary
    assert "1,234 /data/b" in summary


def test_a_model_that_was_only_studied_says_so(tmp_path: Path) -> None:
    shown = page(write_eval(tmp_path / "eval", {"a": evaluated()}), write_study(tmp_path / "study", ("b",)))
    assert "b not evaluated 1.50 ± 0.23 – –" in shown.text


def test_the_same_results_give_the_same_page(tmp_path: Path) -> None:
    runs = collect([write_eval(tmp_path / "eval"), write_study(tmp_path / "study")], kinds=KINDS)
    assert render(runs, title="t") == render(runs, title="t")


def test_versions_and_commands_are_those_of_the_results(whole: Page) -> None:
    made = whole.text.split("How this page was made")[2]
    assert "mjp eval plain mjp \\ --data embedded \\ --draws 2 \\ --seed 7" in made
    assert "with mjp 0.1.0, torch 2.13.0, timm 1.0.30" in made


def test_accuracy_and_consistency_come_first(whole: Page) -> None:
    """On a phone the first columns are what a reader sees without scrolling."""
    heads = whole.text.split("headline numbers")[1]
    assert heads.index("top-1, %") < heads.index("consistency, %") < heads.index("position error") < heads.index("data")


def test_supplementary_table_4_stands_beside_our_corruptions(whole: Page) -> None:
    beside = whole.text.split("supplementary Table 4")[1]
    assert "DeiT-S + MJP 39.9 41.8 41.2 49.9 58.6 47.4 34.5 43.3 40.0 35.8 41.5" in beside
    assert "mjp corruptions: generated" in beside
