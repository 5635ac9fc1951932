"""The page that is made of results: what a run buys, and for what."""

from pathlib import Path
from typing import Any

import pytest

from mjp.common.errors import InputError
from mjp.reproduce.document import document
from mjp.reproduce.findings import add_findings
from mjp.reproduce.overview import overview


def claim(run: str, quantity: str, margin: float, verdict: str) -> dict[str, Any]:
    difference = {"mean": 0.02, "low": 0.01, "high": 0.03, "seeds": 3, "pictures": None}
    names = {"id": f"{run}-{quantity}", "text": f"{run} {quantity}", "published": "–", "of": run, "than": "A"}
    return {
        **names,
        "quantity": quantity,
        "margin": margin,
        "verdict": verdict,
        "post_hoc": run == "G",
        "size": 9.0,
        "unit": "points",
        "ours": False,
        "comparisons": 3,
        "factor": 100,
        "digits": 2,
        "difference": difference,
    }


def results(price: str) -> dict[str, Any]:
    claims = [claim("J", "top1@0.5", 0.0, "holds"), claim("J", "top1", 0.01, price), claim("G", "top1", 0.01, "holds")]
    scale = {"name": "toy", "title": "Toy", "about": "A toy.", "gpu": None}
    counts = {"cells": 6, "planned": 6, "seeds": [0, 1, 2], "seconds": 60}
    doubts = [{"question": "Does J cost accuracy?", "claims": ["J-top1"], "answer": "It gains {J-top1}."}]
    findings = ["J gains {J-top1@0.5} and pays {J-top1}."]
    empty: dict[str, Any] = {"tables": {}, "corruptions": {}, "gates": {}}
    models = {"J": {"title": "MJP", "seeds": 3}}
    return {
        "scale": scale,
        "models": models,
        "claims": claims,
        "doubts": doubts,
        "findings": findings,
        **empty,
        **counts,
    }


def page(price: str) -> str:
    return document(results(price))


@pytest.mark.parametrize(
    ("price", "sentence"),
    [("holds", "Shown for: MJP (J)."), ("undecided", "None shows it"), ("does not hold", "None shows it")],
)
def test_worth_having_is_what_gains_and_costs_little_beyond_doubt(price: str, sentence: str) -> None:
    section = page(price).partition("Is it worth having?")[2].partition("###")[0]
    assert sentence in section
    assert "| MJP (J) | +2.00 [+1.00, +3.00] points | – | +2.00 [+1.00, +3.00] points |" in section
    assert "(G)" not in section  # nothing says what it gains


def test_a_gain_over_another_network_is_not_one_over_plain() -> None:
    body = results("holds")
    body["claims"] += [{**claim("J", "top1@0.5", 0.0, "does not hold"), "id": "other", "than": "E"}]
    assert "Shown for: MJP (J)." in document(body)


@pytest.mark.parametrize("price", ["holds", "undecided", "not run"])
def test_doubts_and_findings_appear_once_their_claims_are_judged(price: str) -> None:
    row = f"- J top1: +2.00 [+1.00, +3.00] points, **{price}**"
    finding = "- J gains +2.00 [+1.00, +3.00] points and pays +2.00 [+1.00, +3.00] points."
    text = page(price)
    for sentence in (row, finding, "**Does J cost accuracy?** It gains +2.00 [+1.00, +3.00] points."):
        assert (sentence in text) == (price != "not run")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("findings: ['It gains {nobody}.']", "names the claim 'nobody', which the scale does not have"),
        ("findings: It gains.", "findings must be a list of sentences"),
        ("findings: [5]", "5 must be a sentence"),
        ("answers: {'Why?': Because.}", "answers 'Why\\?', which the scale does not ask"),
    ],
)
def test_findings_about_nothing_are_refused(content: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "findings.yaml").write_text(content)
    with pytest.raises(InputError, match=sentence):
        add_findings(results("holds"), tmp_path)


def test_findings_stand_beside_the_cells_that_they_are_about(tmp_path: Path) -> None:
    assert add_findings(results("holds"), tmp_path)["findings"] == []
    answers = "answers: {'Does J cost accuracy?': No.}"
    (tmp_path / "findings.yaml").write_text(f"findings: ['J gains {{J-top1}}.']\n{answers}\n")
    body = add_findings(results("holds"), tmp_path)
    assert body["findings"] == ["J gains {J-top1}."]
    assert body["doubts"][0]["answer"] == "No."


def test_only_less_than_one_point_counts_as_little() -> None:
    body = results("holds")
    body["claims"][1]["margin"] = 0.2
    assert "Is it worth having?" not in document(body)


def test_a_verdict_says_when_the_published_size_is_excluded() -> None:
    assert "| **holds**, smaller than published |" in page("holds")
    assert "| **undecided**, but not the published size |" in page("undecided")


def test_claims_that_came_later_have_a_star() -> None:
    assert "| G top1 \\* |" in page("holds")
    assert "| J top1 |" in page("holds")


def test_the_overview_counts_claims_and_names_what_is_worth_having() -> None:
    text = overview([results("holds"), {**results("undecided"), "scale": {"title": "Other"}}])
    assert "| claims of the paper | hold | undecided |" in text  # only outcomes that occur
    assert "| Toy | 3 | 0 |" in text
    assert "| Other | 2 | 1 |" in text
    assert "- Toy, MJP: top-1 +2.00 [+1.00, +3.00] points with half of the patches shuffled" in text
    assert "- Other" not in text
    assert "No run is shown to be worth having" in overview([results("undecided")])
    assert "No run is shown" not in text
    ours = {**results("holds"), "claims": [{**claim("J", "top1", 0.0, "holds"), "ours": True}]}
    assert "| Toy |" not in overview([ours])  # no claim of the paper
