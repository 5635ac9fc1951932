"""All scales in a few lines: how many claims of the paper hold, and what is worth having."""

from collections import Counter
from collections.abc import Sequence
from textwrap import fill
from typing import Any

from mjp.report.claims import interval
from mjp.reproduce.document import WIDTH, markdown
from mjp.reproduce.worth import trades

OUTCOMES = {
    "holds": "hold",
    "does not hold": "do not hold",
    "undecided": "undecided",
    "gated": "not counted",
    "not run": "not run",
}


def overview(bodies: Sequence[dict[str, Any]]) -> str:
    counts = {body["scale"]["title"]: Counter(c["verdict"] for c in body["claims"] if not c["ours"]) for body in bodies}
    outcomes = [name for name in OUTCOMES if any(count[name] for count in counts.values())]
    rows = [[title, *(str(count[name]) for name in outcomes)] for title, count in counts.items() if count]
    table = markdown(["claims of the paper", *(OUTCOMES[name] for name in outcomes)], rows)
    about = "Comparisons that the paper does not make are not counted here; the tables of the scales have them."
    worth = [
        f"- {body['scale']['title']}, {body['models'][trade.run]['title']}: top-1 {interval(trade.gain)} with half "
        "of the patches shuffled"
        + (f" ({interval(trade.gain_not_told)} if not told which)" if trade.gain_not_told else "")
        + f", {interval(trade.unshuffled)} with none."
        for body in bodies
        for trade in trades(body["claims"])
        if trade.is_worth_having
    ]
    sentence = (
        "Shown to be worth having, that is more accurate than plain with half of the patches shuffled, and less than "
        "one point lost with none:"
        if worth
        else "No run is shown to be worth having: more accurate than plain with half of the patches shuffled, and less "
        "than one point lost with none."
    )
    bullets = [fill(line, WIDTH, subsequent_indent="  ") for line in worth]
    paragraphs = ["\n".join(table), about, fill(sentence, WIDTH), *(["\n".join(bullets)] if worth else [])]
    return "\n\n".join(["## In short", *paragraphs]) + "\n"
