"""The bound of every row with Gaussian noise on single pictures' gradients, and the lines that tell people.

The other figures of an audit say what attacks did; this one says what no attack can do, as far as its assumptions hold.
"""

import math
from typing import Any

from mjp.privacy.combination import parse
from mjp.privacy.server.bound import bound_gain
from mjp.privacy.server.prior import Prior


def bound_on(row: dict[str, Any], prior: Prior, *, pictures: int, rounds: int) -> dict[str, Any] | None:
    """Nats and dB; None without a bound: no such noise, another target (b), or a picture twice in one batch."""
    defence = parse(row["defence"])
    sigma = defence.noise_multiplier
    if sigma is None or row["setting"] == "b" or defence.batch > pictures:
        return None
    updates = rounds * (defence.local_steps.number if defence.local_steps else 1)
    figures = bound_gain(prior, sigma, updates)._asdict()
    return {"updates": updates, **{name: None if value == math.inf else value for name, value in figures.items()}}


def bound_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = {}
    for row in rows:
        if row["bound"]:
            bound = row["bound"]
            updates = "one update" if bound["updates"] == 1 else f"{bound['updates']} updates"
            gaussian, any_prior = (_decibels(bound[name]) for name in ("gaussian", "any_prior"))
            lines[row["model"], row["defence"]] = (
                f"no attack on {updates} of {row['model']}, {row['defence']}, gains more over the guess in mean "
                f"squared error than {gaussian} if pictures are like the prior; whatever they are like, over the best "
                f"guess of whoever knows that, than {any_prior}: on average over pictures, not for the luckiest, and "
                "if the noise is exactly Gaussian and stays secret"
            )
    return list(lines.values())


def _decibels(value: float | None) -> str:
    return "any amount" if value is None else f"{value:.3g} dB"
