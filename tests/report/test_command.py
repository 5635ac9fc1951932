"""`mjp report` from what a person types to the page that it names, on what mjp eval and mjp study really write."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import timm

from mjp.cli.main import main
from report.folders import Page, write_eval

SMALL: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 8,
    "depth": 1,
    "embed_dim": 24,
    "num_heads": 2,
    "num_classes": 10,
}


def test_from_models_to_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, config in (("plain", "A"), ("full", "J")):
        vit = timm.create_model("deit_tiny_patch16_224", **SMALL)
        mjp.MJP(vit, mjp.variant(config)).save_pretrained(tmp_path / name)
    quick = ["--limit", "20", "--ratios", "0.3", "0.8", "--draws", "1", "--workers", "0"]
    assert main(["eval", "./plain", "./full", *quick]) == 0
    assert main(["study", "./plain", "./full"]) == 0
    assert main(["report", "pages/report.html", "--title", "Mine & yours"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "eval   out/eval",
        "study  out/study",
        "report pages/report.html",
    ]
    shown = Page((tmp_path / "pages" / "report.html").read_text(encoding="utf-8"))
    assert "Mine & yours" in shown.text
    assert len(shown.all("img")) == 4
    assert "E_unk, γ = 0.3" in shown.text.split("Published")[-1]  # the nearest to 0.5
    assert [path.name for path in (tmp_path / "pages").iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["page.html"], "there are no results in out/: run `mjp eval MODEL...`"),
        (["page.html", "nowhere"], "there is no folder nowhere"),
        (["folder"], "folder is a folder: name the page to write, as in folder/report.html"),
        (["page.txt", "made"], "the page must be named *.html, not page.txt"),
        (["page.html", "made"], "there is no picture made/sweep.png"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (write_eval(tmp_path / "made") / "sweep.png").unlink()
    assert main(["report", *arguments]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not list(tmp_path.glob("page*"))


def test_a_page_that_is_there_is_kept_when_something_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.html").write_text("the last good one")
    assert main(["report", "page.html", "nowhere"]) == 2
    assert (tmp_path / "page.html").read_text() == "the last good one"


def test_a_run_about_robustness_alone_has_a_page(tmp_path: Path) -> None:
    arguments = ["--ratios", "--corrupt", "--corruptions", "contrast", "--limit", "20", "--workers", "0"]
    assert main(["eval", "mini-cifar10-mjp", *arguments, "--out", str(tmp_path / "eval")]) == 0
    assert main(["report", str(tmp_path / "page.html"), str(tmp_path / "eval")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "Robustness" in page
    assert "contrast" in page


def test_a_page_that_cannot_be_written_is_named_and_not_its_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(source))

    write_eval(tmp_path / "made")
    (tmp_path / "file").touch()
    for page in (tmp_path / "page.html", tmp_path / "file" / "page.html"):
        monkeypatch.setattr(os, "replace", fail)
        assert main(["report", str(page), str(tmp_path / "made")]) == 2
        message = capsys.readouterr().err
        assert message.startswith(f"mjp report: {page} cannot be written (")
        assert "tmp" not in message.removeprefix(f"mjp report: {page}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "made"]
