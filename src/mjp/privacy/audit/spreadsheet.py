"""audit.csv: one line for each model, defence, setting and attack."""

import csv
from pathlib import Path
from typing import Any

from mjp.common.files import write_atomically
from mjp.privacy.audit.summary import QUANTITIES

EXTRAS = ("worst_picture", "condition", "match", "seconds", "refusals")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def write_spreadsheet(rows: list[dict[str, Any]], path: Path) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            bounds = [f"{name}{end}" for name in QUANTITIES for end in ("", "_low", "_high")]
            names = [
                "model",
                "defence",
                "setting",
                "attack",
                "best",
                *bounds,
                *EXTRAS,
                "top1",
                "consistency",
                "verdict",
            ]
            writer.writerow(names)
            writer.writerows([_cell(value) for value in line] for row in rows for line in _lines(row))

    write_atomically(path, write)


def _lines(row: dict[str, Any]) -> list[list[Any]]:
    useful = row["usefulness"]
    shares = [useful["top1"][0], useful["consistency"][0]] if useful else ["", ""]
    lines = []
    for name, attack in row["attacks"].items():
        start = [row["model"], row["defence"], row["setting"], name, name == row["best"]]
        values = [value for quantity in QUANTITIES for value in (attack[quantity] or ("", "", ""))]
        lines.append([*start, *values, *(attack[key] for key in EXTRAS), *shares, row.get("verdict", "")])
    return lines


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets an apostrophe; numbers, also negative ones, stay numbers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value
