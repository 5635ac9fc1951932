"""Is a network worth having? It gains accuracy under the jigsaw and costs less than one point without it, each with its
whole interval."""

from typing import Any, NamedTuple

Verdict = dict[str, Any]  # a claim with its difference and verdict, as results.json holds it


class Trade(NamedTuple):
    """What a run gains over plain under the jigsaw, and what it pays without one."""

    run: str
    gain: Verdict
    price: Verdict

    @property
    def is_worth_having(self) -> bool:
        return self.gain["verdict"] == self.price["verdict"] == "holds"


def trades(claims: list[Verdict]) -> list[Trade]:
    """Every run that is judged by both, against the same network."""
    judged = [claim for claim in claims if claim["verdict"] != "not run"]
    gains = {claim["of"]: claim for claim in judged if claim["quantity"] == "top1@0.5"}
    prices = {claim["of"]: claim for claim in judged if claim["quantity"] == "top1" and claim["margin"]}
    return [
        Trade(run, gain, prices[run])
        for run, gain in gains.items()
        if run in prices and gain["than"] == prices[run]["than"]
    ]
