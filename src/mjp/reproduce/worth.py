"""Is a network worth having? It gains accuracy under the jigsaw and costs less than one point without it, each with its
whole interval."""

from typing import NamedTuple

from mjp.report.claims import Claim

POINT = 0.01


class Trade(NamedTuple):
    """What a run gains over another with half of the patches shuffled, and how it differs with none shuffled."""

    run: str
    gain: Claim  # under the run's own treatment of masked slots
    gain_not_told: Claim | None  # when it is not told which patches moved
    unshuffled: Claim

    @property
    def is_worth_having(self) -> bool:
        return self.gain["verdict"] == self.unshuffled["verdict"] == "holds"


def trades(claims: list[Claim]) -> list[Trade]:
    """Every run that is judged by both, against the same network."""
    by_runs = {
        (claim["of"], claim["than"], claim["quantity"], claim["margin"]): claim
        for claim in claims
        if claim["verdict"] != "not run"
    }
    return [
        Trade(of, gain, by_runs.get((of, than, "top1_kept@0.5", 0)), by_runs[of, than, "top1", POINT])
        for (of, than, quantity, margin), gain in by_runs.items()
        if (quantity, margin) == ("top1@0.5", 0) and (of, than, "top1", POINT) in by_runs
    ]
