"""What the README says first: plain beside MJP, from results.json of the scale `finetune`."""

from textwrap import fill
from typing import Any

from mjp.reproduce.document import WIDTH, markdown

RUNS = {"A": "plain", "J": "MJP"}
QUANTITIES = {
    "top1": "top-1",
    "top1@0.5": "top-1, half of the patches shuffled",
    "consistency@0.5": "predictions that survive it",
}
COST = {"holds": "less than one point", "undecided": "not decided", "does not hold": "more than one point"}


def first_result(body: dict[str, Any]) -> str:
    """A table of the two runs, and three claims with their intervals."""
    rows = {row["run"]: row for row in body["tables"]["variants"]["rows"]}
    table = [[name, *(_percent(rows[run]["figures"][key]) for key in QUANTITIES)] for run, name in RUNS.items()]
    claims = {claim["id"]: claim for claim in body["claims"]}
    shuffled, consistent, price = (
        claims[name] for name in ("mjp-accurate-under-jigsaw", "mjp-helps-consistency", "mjp-costs-little")
    )
    before = (
        f"**What it buys.** An ImageNet-trained DeiT-Ti, fine-tuned on 100 classes at 128 px, {rows['J']['seeds']} "
        "seeds each, 5,000 held-out pictures (`mjp reproduce finetune`, γ = .15; mean ± standard deviation over seeds):"
    )
    after = (
        f"So MJP gains {_points(shuffled)} points of accuracy under the jigsaw and {_points(consistent)} of "
        f"consistency. Without a jigsaw its accuracy differs by {_points(price)} points: what it costs is "
        f"{COST[price['verdict']]}. "
        f"Intervals are corrected for all {len(claims)} claims that are tested: [docs/results.md](docs/results.md) has "
        "each with its verdict, and grows as runs finish."
    )
    return "\n".join(
        [fill(before, WIDTH), "", *markdown(["", *QUANTITIES.values()], table), "", fill(after, WIDTH), ""]
    )


def _percent(figure: dict[str, float]) -> str:
    return f"{100 * figure['mean']:.1f} ± {100 * figure['std']:.1f} %"


def _points(claim: dict[str, Any]) -> str:
    mean, low, high = (100 * claim["difference"][name] for name in ("mean", "low", "high"))
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]".replace("-", "−")
