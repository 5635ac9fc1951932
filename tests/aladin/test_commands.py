"""The commands as people give them: index, search, stats, delete, serve, bench."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from aladin.gallery import make_gallery
from mjp.aladin.index.scan import content_hash
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.search.sheet import SIDE
from mjp.cli.main import main
from mjp.pictures.sheet import GAP


@pytest.fixture
def home(tmp_path: Path, model: Aladin, retrieval_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model and four pictures, in the present folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(retrieval_home / "model", tmp_path / "model")
    make_gallery(tmp_path / "pictures", 4)
    return tmp_path


def index() -> int:
    return main(["aladin", "index", "pictures", "-o", "index", "--model", "model", "--workers", "0"])


def test_from_a_folder_to_a_sheet(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "pictures" / "zero.jpg").touch()
    assert index() == 0
    assert "4 pictures encoded" in capsys.readouterr().out
    assert main(["aladin", "index", "pictures", "-o", "index", "--workers", "0"]) == 0  # the index knows its model
    assert "4 files unchanged" in capsys.readouterr().out
    assert main(["aladin", "search", "index", "red sky", "-k", "3", "--rerank", "4", "--explain"]) == 0
    shown = capsys.readouterr().out
    assert shown.count(".png") == 4  # three hits and the sheet
    facts = json.loads((home / "out/aladin-search/results.json").read_text())
    assert [word["word"] for word in facts["matches"][0]["words"]] == ["red", "sky"]
    assert len(facts["matches"]) == 3
    with Image.open(home / "out/aladin-search/sheet.png") as sheet:
        assert sheet.width > 800
    assert main(["aladin", "stats", "index"]) == 0
    assert "kB per picture" in capsys.readouterr().out
    assert main(["aladin", "stats", "index", "--json"]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert stats["pictures"] == stats["files"] == 4
    assert stats["model"] == Index(home / "index").config.model
    assert stats["bytes"] > 1000
    assert list(stats["unreadable"].values()) == ["the file is empty"]


def test_with_json_the_results_are_all_that_is_printed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index()
    commands = {
        "index": ["index", "pictures", "-o", "index", "--workers", "0"],
        "search": ["search", "index", "red sky", "--explain"],
        "stats": ["stats", "index"],
        "delete": ["delete", "index", "pictures/a"],
    }
    for name, arguments in commands.items():
        capsys.readouterr()
        assert main(["aladin", *arguments, "--json"]) == 0
        results = json.loads(capsys.readouterr().out)
        assert results["kind"] == f"aladin {name}"
        expected = {
            "index": ("unchanged", 4),
            "search": ("query", "red sky"),
            "stats": ("pictures", 4),
            "delete": ("removed", 2),
        }
        key, value = expected[name]
        assert results[key] == value
    assert json.loads((home / "out/aladin-search/results.json").read_text())["matches"]


def test_search_by_picture(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index()
    assert main(["aladin", "search", "index", "--picture", "pictures/a/01.png", "-k", "1"]) == 0
    facts = json.loads((home / "out/aladin-search/results.json").read_text())
    assert facts["matches"][0]["id"] == content_hash(home / "pictures/a/01.png")


@pytest.mark.parametrize("options", [["--since", "2100"], ["--offset", "9"], ["--folder", "elsewhere", "--explain"]])
def test_nothing_to_show_is_said_and_leaves_no_old_sheet(
    home: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    index()
    assert main(["aladin", "search", "index", "sky"]) == 0
    assert "no picture to show" not in capsys.readouterr().out
    assert main(["aladin", "search", "index", "sky", *options]) == 0
    assert "no picture to show" in capsys.readouterr().out
    assert json.loads((home / "out/aladin-search/results.json").read_text())["matches"] == []
    assert not (home / "out/aladin-search/sheet.png").exists()


def test_a_picture_without_some_words(home: Path) -> None:
    index()
    assert main(["aladin", "search", "index", "- sky", "--picture", "pictures/a/01.png"]) == 0


def test_a_sheet_shows_the_first_hits_and_the_figures_tell_of_all(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    index()
    for module in ("run", "sheet"):
        monkeypatch.setattr(f"mjp.aladin.search.{module}.MAX_PICTURES", 3)
    for k in ("3", "4"):
        capsys.readouterr()
        assert main(["aladin", "search", "index", "sky", "-k", k]) == 0
        shown = capsys.readouterr().out
        assert ("sheet.png, the first 3 of 4" in shown) == (k == "4")
        assert shown.count("pictures/") == int(k)  # in the table
        assert len(json.loads((home / "out/aladin-search/results.json").read_text())["matches"]) == int(k)
        with Image.open(home / "out/aladin-search/sheet.png") as sheet:
            assert sheet.width == GAP + 3 * (SIDE + GAP)


def test_sheets_among_the_pictures_are_passed_over(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index()
    assert main(["aladin", "search", "index", "sky", "--out", "pictures/found"]) == 0
    capsys.readouterr()
    for _ in range(2):  # the second time it is known
        assert index() == 0
        shown = capsys.readouterr().out
        assert "0 pictures encoded" in shown
        assert "4 files unchanged" in shown
        assert "1 contact sheets of mjp aladin search skipped" in shown
        assert "cannot be read" not in shown
    assert main(["aladin", "stats", "index", "--json"]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert (stats["pictures"], stats["files"], stats["unreadable"]) == (4, 4, {})
    assert main(["aladin", "index", "pictures/found", "-o", "other", "--model", "model", "--workers", "0"]) == 2
    assert "only contact sheets" in capsys.readouterr().err


def test_one_of_two_paths_can_be_removed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(home / "pictures/a/01.png", home / "pictures/copy.png")
    index()
    assert main(["aladin", "delete", "index", "pictures/copy.png"]) == 0
    assert "0 pictures and 1 paths removed, 4 pictures left" in capsys.readouterr().out


def test_what_pipes_must_not_read_is_said_on_standard_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index()
    capsys.readouterr()
    assert main(["aladin", "search", "index", "sky " * 200, "--paths", "-k", "1"]) == 0
    answer = capsys.readouterr()
    assert "words were not read" in answer.err
    assert len(answer.out.splitlines()) == 1


def test_delete_by_path_folder_and_id(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index()
    assert main(["aladin", "delete", "index", "pictures/a/01.png", "nowhere"]) == 2
    assert len(Index(home / "index")) == 4  # all or nothing
    assert main(["aladin", "delete", "index", "pictures/a/01.png"]) == 0
    assert main(["aladin", "delete", "index", content_hash(home / "pictures/a/03.png")]) == 0
    assert len(Index(home / "index")) == 2
    shutil.rmtree(home / "pictures")  # an entry can be deleted when its file has gone
    assert main(["aladin", "delete", "index", "pictures/b"]) == 0
    assert len(Index(home / "index")) == 0
    assert "2 pictures and 2 paths removed, 0 pictures left" in capsys.readouterr().out
    assert main(["aladin", "stats", "index"]) == 0
    assert "per picture" not in capsys.readouterr().out  # there is none


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["search", "index", "?!"], "contains no word"),
        (["search", "index"], "search with a query in words, with a picture"),
        (["search", "index", "sky", "--since", "yesterday"], "--since 'yesterday' is not a date"),
        (["search", "index", "sky", "--until", "2024-13"], "--until '2024-13' is not a date"),
        (["search", "index", "sky", "--offset", "-1"], "--offset must be a whole number from 0"),
        (["search", "index", "sky", "--null"], "--null goes with --paths"),
        (["serve", "index", "--host", "0.0.0.0"], "--token"),
        (["serve", "index", "--thumbnail-mb", "-1"], "--thumbnail-mb must be"),
        (["search", "index", "--picture", "pictures/a/01.png", "--explain"], "needs a query in words"),
        (["search", "index", "--picture", "nowhere.png"], "there is no picture nowhere.png"),
        (["search", "index", "dog", "-k", "0"], "from 1 to 10000"),
        (["search", "nowhere", "dog"], "is not an index"),
        (["search", "index", "dog", "--model", "nowhere"], "there is no nowhere/config.json"),
        (["search", "index", "dog", "--model", "aladin-none"], "there is no"),
        (["index", "pictures", "-o", "pictures", "--model", "model"], "is not an index"),
        (["index", "pictures", "-o", "index", "--mask-ratio", "0.5"], "--mask-ratio 0, not 0.5"),
        (["serve", "index", "--port", "99999"], "--port must be a whole number from 0 to 65535, not 99999"),
        (["search", "index", "dog", "-k", "-3"], "-k must be a whole number from 1 to 10000, not -3"),
        (["search", "index", "dog", "--rerank", "-1"], "--rerank must be a whole number of at least 0"),
        (["search", "index", "dog", "--max-pixels", "0"], "--max-pixels must be a whole number of at least 1"),
        (["search", "index", "dog", "--out", ""], "--out is empty: name a folder"),
        (["index", "pictures", "-o", ""], "--out is empty: name a folder"),
        (["index", "pictures", "--out=", "--model", "model"], "--out is empty: name a folder"),
        (["index", "pictures", "-o", "index", "--workers", "-1"], "--workers must be a whole number from 0"),
        (["index", "pictures", "-o", "index", "--max-pixels", "-5"], "--max-pixels must be a whole number"),
        (["serve", "index", "--port", "-1"], "--port must be a whole number from 0 to 65535"),
        (["serve", "index", "--k", "0"], "-k must be a whole number from 1 to 100"),
        (["serve", "index", "--rerank", "-1"], "--rerank must be a whole number of at least 0"),
        (["bench", "--model", "model", "--sizes", "0"], "--sizes must be a whole number of at least 1"),
        (["bench", "--model", "model", "--repeats", "0"], "--repeats must be a whole number of at least 1"),
        (["delete", "index"], "name at least one"),
        (["delete", "index", ""], "none of them empty"),
        (["stats", "pictures"], "is not an index"),
    ],
)
def test_mistakes_get_one_sentence(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    index()
    capsys.readouterr()
    assert main(["aladin", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.strip().splitlines()) == 1
    assert not (home / "out").exists()


def test_results_that_cannot_be_written_are_refused_first(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index()
    (home / "file").touch()
    assert main(["aladin", "search", "index", "--picture", "nowhere.png", "--out", "file"]) == 2
    assert "the results cannot go to file" in capsys.readouterr().err  # the picture was not looked at


def test_a_large_picture_is_looked_for_without_a_warning(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1500)  # the picture has 1920
    assert main(["aladin", "search", "index", "--picture", "pictures/a/01.png", "-k", "1"]) == 0


def test_an_index_of_another_model_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index()
    facts = json.loads((home / "index/index.json").read_text())
    (home / "index/index.json").write_text(json.dumps(facts | {"model": "0" * 16}))
    for arguments in (["search", "index", "dog"], ["index", "pictures", "-o", "index"], ["serve", "index"]):
        assert main(["aladin", *arguments]) == 2
        assert "another model" in capsys.readouterr().err


def test_the_shipped_model_is_found_by_its_name_or_its_absence_is_said(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mjp.aladin.model.shipped.HOME", home / "models")
    assert main(["aladin", "index", "pictures", "-o", "index", "--workers", "0"]) == 2
    assert "--model FOLDER" in capsys.readouterr().err
    shutil.copytree(home / "model", home / "models" / "aladin-flickr8k")
    assert main(["aladin", "index", "pictures", "-o", "index", "--workers", "0"]) == 0
    assert Index(home / "index").config.source == "aladin-flickr8k"
    assert main(["aladin", "search", "index", "sky"]) == 0


def test_bench_splits_the_time_and_says_which_ratio_is_which(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--sizes", "30", "60", "--repeats", "1", "--rerank", "5", "--pages", "30", "--json"]
    assert main(["aladin", "bench", "--model", "model", *arguments]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == json.loads((home / "out/aladin-bench/results.json").read_text())
    assert (facts["kind"], list(facts["models"])) == ("aladin bench", ["model"])
    with Image.open(home / "out/aladin-bench/latency.png") as chart:
        assert chart.width > 800
    facts = facts["models"]["model"]
    costs = facts["serving"]
    least = costs["milliseconds"]["encode"] + costs["milliseconds"]["product"]
    assert costs["ratios"]["page_over_encode_and_product"] == pytest.approx(costs["milliseconds"]["page"] / least)
    assert 0 < costs["ratios"]["jpeg_over_full_decoding"] < 1
    assert [each["pictures"] for each in facts["sizes"]] == [30, 60]
    for each in facts["sizes"]:
        times = each["milliseconds"]
        assert list(times) == ["encode", "search", "rerank", "exhaustive", "exhaustive_in_memory"]
        assert all(0 < time["p50"] <= time["p95"] for time in times.values())
        scoring = times["exhaustive_in_memory"]["p50"] / times["search"]["p50"]
        assert each["ratios"]["exhaustive_over_vector_scoring"] == pytest.approx(scoring)
        whole = (times["encode"]["p50"] + times["exhaustive_in_memory"]["p50"]) / (
            times["encode"]["p50"] + times["search"]["p50"]
        )
        assert each["ratios"]["exhaustive_over_vector_end_to_end"] == pytest.approx(whole)
        assert each["index_bytes"] > each["pictures"] * (16 * 4 + 16 * 8 * 2)  # a vector of 16, 16 tokens of 8
    assert facts["headline"][0].startswith("30 pictures. Scoring alone: search by vector takes")
    assert "with tokens in memory" in facts["headline"][0]
    assert (
        f"{facts['sizes'][1]['ratios']['exhaustive_over_vector_scoring']:,.0f} times as long. End to end"
        in (facts["headline"][1])
    )


def test_bench_without_memory_for_the_tokens_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mjp.aladin.evaluate.latency.IN_MEMORY", 10)
    assert main(["aladin", "bench", "--model", "model", "--sizes", "20", "--repeats", "1", "--pages", "0"]) == 0
    facts = json.loads((home / "out/aladin-bench/results.json").read_text())["models"]["model"]
    assert "exhaustive_in_memory" not in facts["sizes"][0]["milliseconds"]
    assert "with tokens on disk" in facts["headline"][0]


def test_names_of_classes_are_measured_without_captions(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(("pug", "tabby", "tabby")):
        make_gallery(home / "labels" / name / str(number), 2)
    common = ["aladin", "eval", "model", "--workers", "0", "--latency", "--json"]
    assert main([*common, "--labels", "labels"]) == 0
    labels = json.loads(capsys.readouterr().out)["models"]["model"]["labels"]
    assert (labels["pictures"], labels["classes"]) == (6, 2)
    assert labels["name"]["queries"] == 2
    assert labels["name"]["chance"] == pytest.approx(0.5)
    assert labels["kind"]["queries"] >= 2  # “a dog”, “a cat”; both are animals: not asked
    assert set(labels["name"]["scorers"]) == {"alignment", "vector", "two-stage"}
    for value in labels["kind"]["scorers"]["vector"].values():
        assert 0 <= value["low"] <= value["mean"] <= value["high"] <= 1
    assert main(common) == 2
    assert "--labels" in capsys.readouterr().err
