"""The section on `mjp reproduce`: findings, stars, the runs of a difference, published sizes, doubts, corruptions."""

import json
from pathlib import Path
from typing import Any

import pytest

import mjp
from mjp.report.page import render
from mjp.report.runs import collect
from mjp.report.sections import KINDS
from report.folders import VERSIONS, Page

LATER = ("findings", "doubts", "corruptions")  # fields of results.json that old files lack
LATER_OF_CLAIMS = ("id", "of", "than", "size", "post_hoc", "digits", "comparisons")
STARS = "Starred claims were added after results of their runs had been seen."
HOSTILE = "<script>alert('x')</script>"


def claim(name: str, verdict: str = "holds", **changes: Any) -> dict[str, Any]:
    """A gain of 2 points over A, at least 1 and at most 3."""
    tested = {"mean": 0.02, "low": 0.01, "high": 0.03, "seeds": 3, "pictures": None}
    facts = {"id": name, "text": f"Claim {name}", "quantity": "top1", "of": "J", "than": "A", "published": "80 and 78"}
    measured = {"factor": 100, "digits": 2, "comparisons": 3, "difference": None if verdict == "not run" else tested}
    return {**facts, **measured, "size": None, "post_hoc": False, "verdict": verdict, **changes}


def results(*claims: dict[str, Any], **changes: Any) -> dict[str, Any]:
    about = {"schema": 1, "kind": "reproduce", "settings": {}, "versions": VERSIONS}
    scale = {"name": "toy", "title": "Toy", "about": "A toy.", "gpu": None}
    models = {"A": {"title": "plain", "seeds": 3}, "J": {"title": "MJP", "seeds": 3}}
    empty: dict[str, Any] = {"tables": {}, "gates": {}, "corruptions": {}, "findings": [], "doubts": []}
    counts = {"cells": 6, "planned": 6, "seeds": [0, 1, 2], "seconds": 60}
    return {**about, "scale": scale, "models": models, "claims": list(claims), **empty, **counts, **changes}


def source(folder: Path, body: dict[str, Any]) -> str:
    (folder / "results.json").write_text(json.dumps(body))
    return render(collect([folder], kinds=KINDS), title="Reproduction")


def text(folder: Path, body: dict[str, Any]) -> str:
    return Page(source(folder, body)).text


def test_a_difference_has_its_runs_sign_and_unit(tmp_path: Path) -> None:
    assert "Claim a holds J − A +2.00 [+1.00, +3.00] points 80 and 78" in text(tmp_path, results(claim("a")))
    seconds = claim("b", factor=1, digits=3, difference={"mean": -0.5, "low": -0.6, "high": 0.25, "seeds": 3})
    assert "J − A −0.500 [−0.600, +0.250] 80 and 78" in text(tmp_path, results(seconds))
    one_seed = claim("c", difference={"mean": 0.02, "low": None, "high": None, "seeds": 1})
    assert "J − A +2.00 points 80 and 78" in text(tmp_path, results(one_seed))
    assert "Claim d not run J − A – 80 and 78" in text(tmp_path, results(claim("d", "not run")))


@pytest.mark.parametrize(
    ("verdict", "size", "words"),
    [
        ("holds", 9.0, "holds, smaller than published"),
        ("holds", 0.5, "holds, larger than published"),
        ("holds", 2.5, "holds"),
        ("holds", None, "holds"),
        ("undecided", 9.0, "undecided, but not the published size"),
        ("undecided", 2.5, "undecided"),
        ("does not hold", 9.0, "does not hold"),
        ("gated", 9.0, "gated"),
        ("not run", 9.0, "not run"),
    ],
)
def test_a_verdict_says_when_the_published_size_is_excluded(
    tmp_path: Path, verdict: str, size: float | None, words: str
) -> None:
    assert f"Claim a {words} J − A" in text(tmp_path, results(claim("a", verdict, size=size)))


def test_one_seed_excludes_no_published_size(tmp_path: Path) -> None:
    one_seed = claim("a", size=9.0, difference={"mean": 0.02, "low": None, "high": None, "seeds": 1})
    assert "Claim a holds J − A" in text(tmp_path, results(one_seed))


def test_claims_that_came_later_have_a_star_and_a_sentence(tmp_path: Path) -> None:
    page = text(tmp_path, results(claim("a"), claim("b", post_hoc=True)))
    assert "Claim a holds" in page
    assert "Claim b * holds" in page
    assert STARS in page
    assert STARS not in text(tmp_path, results(claim("a")))


def test_findings_have_differences_and_wait_for_their_claims(tmp_path: Path) -> None:
    findings = ["J gains {a} for `J`.", "It pays {b}.", "Nobody knows {c}.", "No claim here."]
    page = text(tmp_path, results(claim("a"), claim("b", "not run"), findings=findings))
    assert "Findings J gains +2.00 [+1.00, +3.00] points for J. No claim here. Claims" in page
    assert "It pays" not in page
    assert "Findings" not in text(tmp_path, results(claim("b", "not run"), findings=["It pays {b}."]))


def test_doubts_have_their_answer_and_claims_and_wait_for_them(tmp_path: Path) -> None:
    doubts = [
        {"question": "Is it a?", "claims": ["a", "b"], "answer": "By {a}."},
        {"question": "Is it both?", "claims": ["a"], "answer": "Both, {b}."},
        {"question": "Is it b?", "claims": ["b"], "answer": "By {b}."},
    ]
    page = text(tmp_path, results(claim("a", post_hoc=True), claim("b", "not run"), doubts=doubts))
    behind = "Claim a *: +2.00 [+1.00, +3.00] points, holds"
    assert f"Known doubts Is it a? By +2.00 [+1.00, +3.00] points. {behind} Is it both? {behind}" in page
    assert "Both," not in page
    assert "Is it b?" not in page


def test_errors_by_corruption_stand_beside_the_published(tmp_path: Path) -> None:
    errors = {"A": {"gaussian_noise": 0.5, "fog": 0.25}, "J": {"gaussian_noise": 0.45}}
    page = text(tmp_path, results(claim("a"), corruptions=errors))
    assert "corruption A: plain J: MJP published: DeiT-S published: DeiT-S + MJP" in page
    assert "gaussian noise 50.0 45.0 41.0 39.9" in page
    assert "fog 25.0 – – –" in page
    assert "Error by corruption" not in text(tmp_path, results(claim("a")))


def test_files_from_before_these_fields_are_shown(tmp_path: Path) -> None:
    old = {name: value for name, value in claim("a").items() if name not in LATER_OF_CLAIMS}
    body = {name: value for name, value in results(old).items() if name not in LATER}
    page = text(tmp_path, body)
    assert "Claim a holds – +2.00 [+1.00, +3.00] points 80 and 78" in page
    for title in ("Findings", "Known doubts", "Error by corruption", STARS):
        assert title not in page


def test_nothing_in_a_file_becomes_markup(tmp_path: Path) -> None:
    hostile = claim("a", of=HOSTILE, text=HOSTILE, verdict=HOSTILE)
    doubts = [{"question": HOSTILE, "claims": ["a"], "answer": HOSTILE}]
    corruptions = {HOSTILE: {HOSTILE: 0.5}}
    page = source(tmp_path, results(hostile, findings=[HOSTILE], doubts=doubts, corruptions=corruptions))
    assert not Page(page).all("script")
    assert Page(page).text.count(HOSTILE) == 10


def test_what_is_shipped_is_shown_in_full() -> None:
    folder = Path(mjp.__file__).parent / "shipped" / "reproduction" / "finetune"
    body = json.loads((folder / "results.json").read_text())
    page = Page(render(collect([folder], kinds=KINDS), title="Reproduction"))
    assert "{" not in page.text  # every placeholder has its number
    for part in (body["findings"][0].partition("{")[0], body["doubts"][0]["question"], STARS, "jpeg compression"):
        assert part in page.text
