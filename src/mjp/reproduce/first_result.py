"""What the README says first: plain, the jigsaw alone and MJP, from results.json of a scale that has the three."""

from textwrap import fill
from typing import Any

from mjp.report.claims import interval
from mjp.reproduce.document import WIDTH, markdown

RUNS = {"A": "plain", "E": "jigsaw alone", "J": "MJP"}
QUANTITIES = {
    "top1": "top-1",
    "top1@0.5": "top-1, half of the patches shuffled",
    "top1_kept@0.5": "the same, not told which",
    "consistency@0.5": "predictions unchanged by the shuffle",
}
COST = {
    "holds": "it costs less than one point",
    "undecided": "these runs cannot tell whether it costs a point",
    "does not hold": "it costs more than one point",
}


def first_result(body: dict[str, Any]) -> str:
    """A table of the three runs, and the claims about them."""
    table = [[name, *(_percent(_figure(body, run, key)) for key in QUANTITIES)] for run, name in RUNS.items()]
    claims = {claim["id"]: claim for claim in body["claims"]}
    price = claims["mjp-costs-little"]
    before = (
        "**What it buys.** An ImageNet-trained DeiT-Ti, fine-tuned on 100 classes at 128 px, "
        f"{body['models']['J']['seeds']} seeds each, 5,000 held-out pictures "
        f"(`mjp reproduce {body['scale']['name']}`, γ = .15; mean ± standard deviation over seeds):"
    )
    after = (
        "With half of the patches shuffled MJP differs from plain by "
        f"{interval(claims['mjp-accurate-under-jigsaw'])} of top-1 if it is told which patches moved (E_unk stands at "
        f"their slots), and by {interval(claims['mjp-accurate-not-told'])} if it is not; the jigsaw alone, which is "
        f"never told, by {interval(claims['jigsaw-accurate-under-jigsaw'])}. With none shuffled MJP differs by "
        f"{interval(price)}: {COST[price['verdict']]}. Intervals are corrected for the number of claims. "
        "[docs/results.md](docs/results.md) has every claim of the paper that was tested, also those that do not hold "
        "here."
    )
    return "\n".join(
        [fill(before, WIDTH), "", *markdown(["", *QUANTITIES.values()], table), "", fill(after, WIDTH), ""]
    )


def _figure(body: dict[str, Any], run: str, quantity: str) -> dict[str, float]:
    """A figure of a run, from whichever table has it."""
    rows = (row for table in body["tables"].values() for row in table["rows"] if row["run"] == run)
    return next(row["figures"][quantity] for row in rows if quantity in row["figures"])


def _percent(figure: dict[str, float]) -> str:
    return f"{100 * figure['mean']:.1f} ± {100 * figure['std']:.1f} %"
