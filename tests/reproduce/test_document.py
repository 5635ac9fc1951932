"""The page that is made of results: what a run buys, and for what."""

from typing import Any

import pytest

from mjp.reproduce.document import document, overview


def claim(run: str, quantity: str, margin: float, verdict: str) -> dict[str, Any]:
    difference = {"mean": 0.02, "low": 0.01, "high": 0.03, "seeds": 3, "pictures": None}
    names = {"id": f"{run}-{quantity}", "text": f"{run} {quantity}", "published": "–", "of": run, "than": "A"}
    return {
        **names,
        "quantity": quantity,
        "margin": margin,
        "verdict": verdict,
        "post_hoc": run == "G",
        "factor": 100,
        "digits": 2,
        "difference": difference,
    }


def results(price: str) -> dict[str, Any]:
    claims = [claim("J", "top1@0.5", 0.0, "holds"), claim("J", "top1", 0.01, price), claim("G", "top1", 0.01, "holds")]
    scale = {"name": "toy", "title": "Toy", "about": "A toy.", "gpu": None}
    counts = {"cells": 6, "planned": 6, "seeds": [0, 1, 2], "seconds": 60}
    doubts = [{"question": "Does J cost accuracy?", "claims": ["J-top1"]}]
    empty: dict[str, Any] = {"tables": {}, "corruptions": {}, "gates": {}}
    models = {"J": {"title": "MJP", "seeds": 3}}
    return {"scale": scale, "models": models, "claims": claims, "doubts": doubts, **empty, **counts}


def page(price: str) -> str:
    return document(results(price))


@pytest.mark.parametrize(
    ("price", "sentence"), [("holds", "Here: J."), ("undecided", "none is shown"), ("does not hold", "none is shown")]
)
def test_worth_having_is_what_gains_and_costs_little_beyond_doubt(price: str, sentence: str) -> None:
    _, _, section = page(price).partition("Is it worth having?")
    assert sentence in section
    assert "| J | +2.00 [+1.00, +3.00] points, 3 seeds |" in section
    assert "| G |" not in section  # nothing says what it gains


@pytest.mark.parametrize("price", ["holds", "undecided", "not run"])
def test_a_doubt_is_answered_by_its_claims_once_they_are_judged(price: str) -> None:
    row = f"| Does J cost accuracy? | J top1 | +2.00 [+1.00, +3.00] points, 3 seeds | **{price}** |"
    assert (row in page(price)) == (price != "not run")
    assert ("Known doubts" in page(price)) == (price != "not run")


def test_claims_that_came_later_have_a_star() -> None:
    assert "| G top1 \\* |" in page("holds")
    assert "| J top1 |" in page("holds")


def test_the_overview_counts_claims_and_names_what_is_worth_having() -> None:
    text = overview([results("holds"), {**results("undecided"), "scale": {"title": "Other"}}])
    assert "| scale | claims that hold | undecided |" in text  # only outcomes that occur
    assert "| Toy | 3 | 0 |" in text
    assert "| Other | 2 | 1 |" in text
    assert "- Toy, MJP: top-1 +2.00 [+1.00, +3.00] points, 3 seeds" in text
    assert "- Other" not in text
    assert "No network is shown to be worth having" in overview([results("undecided")])
    assert "No network is shown" not in text
