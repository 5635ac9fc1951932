"""audit.csv: names from outside cannot become formulas, and numbers stay numbers."""

import csv
from pathlib import Path
from typing import Any

import pytest

from mjp.privacy.audit.spreadsheet import EXTRAS, write_spreadsheet
from mjp.privacy.audit.summary import QUANTITIES


def row(**changes: Any) -> dict[str, Any]:
    attack = {**dict.fromkeys(QUANTITIES, (-1.5, -2.0, 3.0)), **dict.fromkeys(EXTRAS, -7), "match": None}
    names = {"model": "m", "defence": "none", "setting": "a", "best": "direct", "usefulness": None}
    return {**names, "attacks": {"direct": attack}, **changes}


def lines(rows: list[dict[str, Any]], path: Path) -> list[dict[str, str]]:
    write_spreadsheet(rows, path)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://x")'])
@pytest.mark.parametrize("column", ["model", "defence"])
def test_formulas_are_escaped(text: str, column: str, tmp_path: Path) -> None:
    (line,) = lines([row(**{column: text})], tmp_path / "audit.csv")
    assert line[column] == f"'{text}"


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    useful = {"top1": (0.66, 0.6, 0.7), "consistency": (0.9, 0.8, 1.0)}
    (line,) = lines([row(usefulness=useful)], tmp_path / "audit.csv")
    assert (line["psnr"], line["psnr_low"], line["seconds"]) == ("-1.5", "-2.0", "-7")
    assert (line["top1"], line["consistency"], line["match"], line["model"]) == ("0.66", "0.9", "", "m")
