"""`mjp demo`: the whole tour, its page printed last."""

from pathlib import Path

import pytest

from mjp.cli import eval
from mjp.cli.main import main


def test_the_tour_ends_with_the_path_of_a_complete_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a few pictures: what is tested is that every part arrives on the page."""
    whole = eval.run
    monkeypatch.setattr(eval, "run", lambda options: whole(_few(options)))
    assert main(["demo", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out.strip().splitlines()
    assert said[-1] == f"report {tmp_path / 'out' / 'report.html'}"
    page = (tmp_path / "out" / "report.html").read_text()
    for title in ("Accuracy and consistency", "position embeddings", "class token looks", "gradient gives away"):
        assert title in page
    assert page.count("mini-cifar10-mjp") > 3


def _few(options: eval.Options) -> eval.Options:
    options.limit, options.ratios = 40, (0.5,)
    return options


def test_a_missing_picture_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--picture", "nowhere.jpg", "--out", str(tmp_path / "out")]) == 2
    assert "there is no picture nowhere.jpg" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
