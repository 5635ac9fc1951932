"""Rows and headline of an audit, from hand-made cells."""

from pathlib import Path
from typing import Any

import pytest

from mjp.privacy.audit.cells import Cells, Key
from mjp.privacy.audit.headline import headlines, smallest_ratio
from mjp.privacy.audit.summary import QUANTITIES, summarise
from mjp.privacy.audit.verdicts import verdict_lines, verdict_on


def test_an_attack_that_refuses_one_picture_gets_the_guess_for_it(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "cells.jsonl", {})

    def finding(name: str, psnr: float, refused: str | None = None) -> dict[str, Any]:
        score = {**dict.fromkeys(QUANTITIES), "psnr": psnr}
        scores = {} if refused else {"a": [score]}
        return {"attack": name, "refused": refused, "scores": scores, "facts": {}, "seconds": 0.0}

    for k, other in enumerate((finding("direct", 40.0), finding("direct", 0.0, "no"))):
        cells.add(Key("m", "none", k), [finding("guess", 10.0), other, finding("span", 0.0, "never")])
    (row,) = summarise(cells, ["m"], ["none"], seed=0)
    assert row["attacks"]["direct"]["psnr"][0] == 25
    assert row["attacks"]["direct"]["refusals"] == 1
    assert row["gain_psnr"]["db"][0] == 15
    assert row["refused"] == {"span": "never"}


def test_a_share_of_masked_patches_counts_however_it_is_written() -> None:
    texts = {"mjp:.3": 4.0, "mjp:0.90": 0.5, "mjp:1.0": 0.2, "mjp:0.1+bf16": 0.0, "mjp-shared:0.2": 0.0}
    rows = [{"model": "m", "defence": text, "gain_psnr": {"db": (0.1, 0, gain)}} for text, gain in texts.items()]
    assert smallest_ratio(rows, "m", "psnr") == 0.9


@pytest.mark.parametrize(("upper", "holds"), [(0.9, True), (0.999, True), (1.0, False), (1.2, False), (1.4, False)])
def test_a_defence_holds_if_the_upper_end_of_the_gain_is_below_one_decibel(upper: float, holds: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"model": "m", "defence": "mjp:0.5", "gain_psnr_masked": {"db": (-2, -3, upper)}, "gain_psnr_unmasked": None}
    ]
    assert smallest_ratio(rows, "m", "psnr_masked") == (0.5 if holds else None)
    sentence = headlines(rows, ["m"])["m"]
    assert "the upper end of every attack's gain is below 1 dB" in sentence
    assert f"masked patches: {'γ = 0.5' if holds else 'no measured γ'}" in sentence


def audited(tmp_path: Path, gains: list[list[float]], *, exact: float = 0.0) -> dict[str, Any]:
    """The row of an audit in which an attack gains so many dB on the pictures of every update."""
    cells = Cells(tmp_path / "cells.jsonl", {})

    def finding(name: str, values: list[float], share: float) -> dict[str, Any]:
        empty: dict[str, Any] = dict.fromkeys(QUANTITIES)
        scores = [{**empty, "psnr": 10 + value, "exact": share} for value in values]
        return {"attack": name, "refused": None, "scores": {"a": scores}, "facts": {}, "seconds": 0.0}

    for number, values in enumerate(gains):
        cells.add(
            Key("m", "none", number), [finding("guess", [0.0] * len(values), 0.0), finding("direct", values, exact)]
        )
    (row,) = summarise(cells, ["m"], ["none"], seed=0)
    return row


def test_intervals_resample_batches_not_pictures(tmp_path: Path) -> None:
    """Pictures of one batch are alike here: twice as many of them say no more."""
    single = audited(tmp_path / "single", [[float(value)] for value in range(8)])
    batch = audited(tmp_path / "batch", [[float(value)] * 16 for value in range(8)])
    assert single["gain_psnr"]["db"] == batch["gain_psnr"]["db"]
    low, high = batch["gain_psnr"]["db"][1:]
    assert high - low > 2


@pytest.mark.parametrize(
    ("gains", "exact", "verdict"),
    [
        ([[30.0]] * 6, 0.0, "exposed"),
        ([[0.0], [0.0], [0.0], [0.0], [0.0], [5.0]], 0.0, "exposed"),  # the mean is below 1 dB, the upper end is not
        ([[-1.0]] * 6, 0.01, "exposed"),  # bit-exact patches in a picture that is wrong elsewhere
        ([[0.2], [-0.2]] * 3, 0.0, "not recovered by any attack that ran"),
        ([[0.2], [-0.2]], 0.0, "not covered"),  # two updates make no interval
    ],
)
def test_a_row_is_judged_by_the_upper_end(tmp_path: Path, gains: list[list[float]], exact: float, verdict: str) -> None:
    row = audited(tmp_path, gains, exact=exact)
    assert verdict_on(row) == verdict
    (line,) = verdict_lines([{**row, "verdict": verdict}])
    assert line.startswith(f"{verdict}: m none (a)")


def test_a_row_that_no_attack_can_attack_is_not_covered() -> None:
    assert verdict_on({"best": None}) == "not covered"
