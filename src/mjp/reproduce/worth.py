"""Is a network worth having? It gains accuracy under the jigsaw and costs less than one point without it, each with its
whole interval."""

from typing import NamedTuple

from mjp.reproduce.sentences import Verdict


class Trade(NamedTuple):
    """What a run gains over plain under the jigsaw, and what it pays without one."""

    run: str
    gain: Verdict  # under the run's own treatment of masked slots
    gain_not_told: Verdict | None  # when it is not told which patches moved
    price: Verdict

    @property
    def is_worth_having(self) -> bool:
        return self.gain["verdict"] == self.price["verdict"] == "holds"


def trades(claims: list[Verdict]) -> list[Trade]:
    """Every run that is judged by both, against the same network."""
    judged = {
        (claim["of"], claim["than"], claim["quantity"], claim["margin"] > 0): claim
        for claim in claims
        if claim["verdict"] != "not run"
    }
    return [
        Trade(of, gain, judged.get((of, than, "top1_kept@0.5", False)), judged[of, than, "top1", True])
        for (of, than, quantity, _), gain in judged.items()
        if quantity == "top1@0.5" and (of, than, "top1", True) in judged
    ]
