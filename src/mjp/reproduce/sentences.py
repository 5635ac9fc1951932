"""A claim with its difference and verdict, as text."""

import re
from typing import Any

Verdict = dict[str, Any]  # a claim as results.json holds it


def interval(claim: Verdict) -> str:
    """+3.57 [+1.58, +5.56] points; one seed has no interval."""
    numbers = claim["difference"]
    factor, digits = claim["factor"], claim["digits"]
    text = f"{factor * numbers['mean']:+.{digits}f}"
    if numbers["low"] is not None:
        low, high = (factor * numbers[end] for end in ("low", "high"))
        text += f" [{low:+.{digits}f}, {high:+.{digits}f}]"
    return text.replace("-", "−") + (" points" if factor == 100 else "")


def difference(claim: Verdict, usual_seeds: int | None = None) -> str:
    """The interval, and the number of seeds where it is not the usual one."""
    if claim["difference"] is None:
        return "–"
    seeds = claim["difference"]["seeds"]
    if seeds == usual_seeds:
        return interval(claim)
    return f"{interval(claim)}, {seeds} seed{'' if seeds == 1 else 's'}"


def verdict(claim: Verdict) -> str:
    """The verdict, and how the published size of the difference compares with the interval."""
    text = f"**{claim['verdict']}**"
    numbers, size = claim["difference"], claim["size"]
    if claim["verdict"] not in ("holds", "undecided") or size is None or numbers["low"] is None:
        return text
    low, high = (claim["factor"] * numbers[end] for end in ("low", "high"))
    if low <= size <= high:
        return text
    if claim["verdict"] == "undecided":
        return f"{text}, but not the published size"
    return f"{text}, {'smaller' if size > high else 'larger'} than published"


def fill_in(text: str, claims: dict[str, Verdict]) -> str | None:
    """A sentence with differences in place of the {ID} of claims; None if one of them has not been tested."""
    ids = re.findall(r"\{(.*?)\}", text)
    if any(id not in claims for id in ids):
        return None
    return re.sub(r"\{(.*?)\}", lambda match: interval(claims[match[1]]), text)
