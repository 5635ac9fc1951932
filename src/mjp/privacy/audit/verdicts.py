"""The verdict on every row of an audit, in the words that an update gets, and the lines that tell people.

exposed        the upper end of some gain over the guess reaches the margin, or an attack has bit-exact patches
not recovered  by any attack that ran: every upper end is below the margin
not covered    no attack can run, or there are too few updates for an interval
"""

import math
from typing import Any

from mjp.privacy.audit.headline import MARGIN, upper_gain
from mjp.privacy.audit.summary import GAINS
from mjp.privacy.examine.conclusion import EXPOSED, NOT_COVERED, NOT_RECOVERED
from mjp.privacy.examine.finding import GUESS


def verdict_on(row: dict[str, Any]) -> str:
    if row["best"] is None:
        return NOT_COVERED
    uppers = [upper_gain(row, quantity) for quantity in GAINS if row[f"gain_{quantity}"]]
    means = [row[f"gain_{quantity}"]["db"][0] for quantity in GAINS if row[f"gain_{quantity}"]]
    if max(means) >= MARGIN or _exact(row) or MARGIN <= max(uppers) < math.inf:
        return EXPOSED
    return NOT_COVERED if max(uppers) == math.inf else NOT_RECOVERED


def verdict_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Under the table: which rows got which verdict, and which attacks stand behind it."""
    lines = []
    for verdict in (EXPOSED, NOT_RECOVERED, NOT_COVERED):
        group = [row for row in rows if row["verdict"] == verdict]
        if group:
            names = dict.fromkeys(f"{row['model']} {row['defence']} ({row['setting']})" for row in group)
            lines.append(f"{verdict}: {', '.join(names)}{_behind(verdict, group)}")
    return lines


def _behind(verdict: str, rows: list[dict[str, Any]]) -> str:
    """The attacks that ran on all of these rows, and those that could not on some."""
    if verdict != NOT_RECOVERED:
        return ""
    ran = [name for name in rows[0]["attacks"] if name != GUESS and all(name in row["attacks"] for row in rows)]
    refused = dict.fromkeys(name for row in rows for name in row["refused"])
    failed = f"; could not run on all of them: {', '.join(refused)}" if refused else ""
    return f". Attacks that ran: {', '.join(ran)}{failed}"


def _exact(row: dict[str, Any]) -> bool:
    """Whether an attack has more bit-exact patches than the guess has by chance."""
    shares = {name: attack["exact"][0] for name, attack in row["attacks"].items() if attack.get("exact")}
    return any(share > shares.get(GUESS, 0.0) for share in shares.values())
