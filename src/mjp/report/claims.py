"""A claim of `mjp reproduce` with its difference and verdict, as text.

A claim is a dictionary, as results.json holds it.
"""

import re
from typing import Any

Claim = dict[str, Any]


def interval(claim: Claim) -> str:
    """+3.57 [+1.58, +5.56] points; one seed has no interval."""
    difference, digits = claim["difference"], claim.get("digits", 2)
    mean, *ends = (_signed(claim["factor"] * number, digits) for number in (difference["mean"], *_ends(difference)))
    unit = claim.get("unit", "points" if claim["factor"] == 100 else "")
    return " ".join(filter(None, [mean, f"[{', '.join(ends)}]" if ends else "", unit]))


def remark(claim: Claim) -> str:
    """How the published size of a difference compares with its interval, to be put behind the verdict."""
    size = claim.get("size")
    if size is None or claim["verdict"] not in ("holds", "undecided") or not (ends := _ends(claim["difference"])):
        return ""
    low, high = (claim["factor"] * end for end in ends)
    if low <= size <= high:
        return ""
    if claim["verdict"] == "undecided":
        return ", but not the published size"
    return f", {'smaller' if size > high else 'larger'} than published"


def fill_in(text: str, claims: dict[str, Claim]) -> str | None:
    """A sentence with differences in place of the {ID} of claims; None if one of them has not been judged."""
    if any(id not in claims for id in re.findall(r"\{(.*?)\}", text)):
        return None
    return re.sub(r"\{(.*?)\}", lambda match: interval(claims[match[1]]), text)


def judged(claims: list[Claim]) -> dict[str, Claim]:
    """The claims that have a verdict, by id; the first files had none, and no sentence that needs it."""
    return {str(claim.get("id", claim["text"])): claim for claim in claims if claim["verdict"] != "not run"}


def _ends(difference: dict[str, Any]) -> list[float]:
    return [] if difference["low"] is None else [difference["low"], difference["high"]]


def _signed(number: float, digits: int) -> str:
    return f"{round(number, digits) + 0:+.{digits}f}".replace("-", "−")  # + 0 makes −0 a 0
