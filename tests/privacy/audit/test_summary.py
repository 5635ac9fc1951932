"""Rows and headline of an audit, from hand-made cells."""

from pathlib import Path
from typing import Any

import pytest

from mjp.privacy.audit.cells import Cells, Key
from mjp.privacy.audit.headline import headlines, smallest_ratio
from mjp.privacy.audit.summary import QUANTITIES, summarise


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
    rows = [{"model": "m", "defence": text, "gain_psnr": {"db": (gain, 0, 9)}} for text, gain in texts.items()]
    assert smallest_ratio(rows, "m", "psnr") == 0.9


@pytest.mark.parametrize(("gain", "holds"), [(0.9, True), (0.999, True), (1.0, False), (1.2, False), (1.4, False)])
def test_a_defence_holds_below_a_gain_of_one_decibel(gain: float, holds: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"model": "m", "defence": "mjp:0.5", "gain_psnr_masked": {"db": (gain, 0, 9)}, "gain_psnr_unmasked": None}
    ]
    assert smallest_ratio(rows, "m", "psnr_masked") == (0.5 if holds else None)
    sentence = headlines(rows, ["m"])["m"]
    assert "gains less than 1 dB" in sentence
    assert f"masked patches: {'γ = 0.5' if holds else 'no measured γ'}" in sentence
