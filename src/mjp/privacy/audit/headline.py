"""The headline of an audit: the smallest γ at which every attack gains less than 1 dB over the data-free guess.

A gain is judged by the upper end of its interval: a mean below the margin may be luck.
"""

import math
from collections.abc import Iterable
from typing import Any

from mjp.privacy.combination import parse

MARGIN = 1.0  # dB over the data-free guess
MIN_UPDATES = 5  # of fewer, an interval says nothing


def headlines(rows: list[dict[str, Any]], models: Iterable[str]) -> dict[str, str]:
    """One sentence for each model that was audited under mjp:γ."""
    sentences = {}
    for model in models:
        if not any(row["model"] == model and row["defence"].startswith("mjp:") for row in rows):
            continue
        parts = []
        for quantity, name in (("psnr_masked", "masked"), ("psnr_unmasked", "unmasked")):
            ratio = smallest_ratio(rows, model, quantity)
            parts.append(f"{name} patches: " + ("no measured γ" if ratio is None else f"γ = {ratio:g}"))
        bound = f"the upper end of every attack's gain is below {MARGIN:g} dB from there on"
        sentences[model] = f"{model}: {bound}: {'; '.join(parts)}"
    return sentences


def rounds_lines(rows: list[dict[str, Any]]) -> list[str]:
    """How many rounds it took until pictures were bit-exact, for each model and defence."""
    lines = {}
    for row in rows:
        counts = row["attacks"].get("rounds", {}).get("rounds_until_exact")
        if counts:
            exact = sorted(count for count in counts if count is not None)
            after = f", after {exact[0]} to {exact[-1]} rounds, median {exact[len(exact) // 2]}" if exact else ""
            line = (
                f"{row['model']}, {row['defence']}: {len(exact)} of {len(counts)} pictures bit-exact over rounds{after}"
            )
            lines[row["model"], row["defence"]] = line
    return list(lines.values())


def smallest_ratio(rows: list[dict[str, Any]], model: str, quantity: str) -> float | None:
    """The smallest γ from which on the upper end of every gain over the guess is below 1 dB, there and beyond.

    Only plain `mjp:γ` counts, in the setting that gains more: smoothness alone puts masked patches back, so (c) may.
    None: no measured γ is enough.
    """
    gains: dict[float, float] = {}
    for row in rows:
        ratio = _plain_ratio(row["defence"])
        if row["model"] == model and ratio is not None and row[f"gain_{quantity}"]:
            gain = upper_gain(row, quantity)
            gains[ratio] = max(gain, gains.get(ratio, gain))
    enough = None
    for ratio in sorted(gains, reverse=True):
        if gains[ratio] >= MARGIN:
            break
        enough = ratio
    return enough


def upper_gain(row: dict[str, Any], quantity: str) -> float:
    """The highest upper end of an interval; infinite where there are too few updates for one."""
    updates = min(
        (attack.get("updates", MIN_UPDATES) for attack in row.get("attacks", {}).values()), default=MIN_UPDATES
    )
    gain = row[f"gain_{quantity}"]
    return math.inf if updates < MIN_UPDATES else gain.get("upper", gain["db"][2])


def _plain_ratio(text: str) -> float | None:
    """γ of mjp:γ; None for other defences and combinations."""
    parts = parse(text).parts
    return parts[0].number if [part.defence.name for part in parts] == ["mjp"] else None
