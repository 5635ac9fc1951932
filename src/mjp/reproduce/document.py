"""results.json of `mjp reproduce` as Markdown: docs/results.md is made of this."""

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import Any

from mjp.report.published import CORRUPTIONS, TABLE_4
from mjp.reproduce.worth import trades

WIDTH = 118
COUNTED = {
    "holds": "hold",
    "does not hold": "do not hold",
    "undecided": "undecided",
    "gated": "not counted, because the plain network does not use its positions",
}
OUTCOMES = {
    "holds": "claims that hold",
    "does not hold": "do not hold",
    "undecided": "undecided",
    "gated": "not counted",
    "not run": "not run",
}


def document(body: dict[str, Any], level: int = 1) -> str:
    """One scale, under headings of a level."""
    scale = body["scale"]
    parts = [f"{'#' * level} {scale['title']}", fill(scale["about"], WIDTH), fill(_cost(body), WIDTH)]
    for title, lines in _sections(body):
        parts.append("\n".join([f"{'#' * (level + 1)} {title}", "", *lines]))
    return "\n\n".join(parts) + "\n"


def overview(bodies: Sequence[dict[str, Any]]) -> str:
    """All scales in a few lines: how many claims hold, and what is worth having."""
    counts = {body["scale"]["title"]: Counter(claim["verdict"] for claim in body["claims"]) for body in bodies}
    outcomes = [name for name in OUTCOMES if any(count[name] for count in counts.values())]
    rows = [[title, *(str(count[name]) for name in outcomes)] for title, count in counts.items() if count]
    worth = [
        f"- {body['scale']['title']}, {body['models'][trade.run]['title']}: top-1 {_difference(trade.gain)}, with half "
        f"of the patches shuffled; {_difference(trade.price)}, with none."
        for body in bodies
        for trade in trades(body["claims"])
        if trade.is_worth_having
    ]
    sentence = (
        "Shown to be worth having (more accurate than plain under the jigsaw, at less than one point without it):"
    )
    if not worth:
        sentence = (
            "No network is shown to be worth having: more accurate than plain under the jigsaw, at less than one "
        )
        sentence += "point without it."
    table = markdown(["scale", *(OUTCOMES[name] for name in outcomes)], rows)
    bullets = [fill(line, WIDTH, subsequent_indent="  ") for line in worth]
    return "\n".join(["## In short", "", *table, "", fill(sentence, WIDTH), *([""] if worth else []), *bullets]) + "\n"


def _cost(body: dict[str, Any]) -> str:
    seeds = ", ".join(map(str, body["seeds"]))
    return (
        f"`mjp reproduce {body['scale']['name']}`: {body['cells']} of {body['planned']} runs are done (seeds {seeds}), "
        f"{body['seconds'] / 3600:.1f} hours of one {'GPU' if body['scale']['gpu'] else 'core'} so far."
    )


def _sections(body: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    if body["claims"]:
        yield "Verdicts", _verdicts(body["claims"])
        if trades := _trades(body["claims"]):
            yield "Is it worth having?", trades
        if doubts := _doubts(body["doubts"], body["claims"]):
            yield "Known doubts", doubts
    for table in body["tables"].values():
        if any(row["seeds"] for row in table["rows"]):
            yield table["title"], _table(table)
    if body["corruptions"]:
        yield "By corruption", _corruptions(body["corruptions"])
    yield "The gate", _gates(body["gates"])


def _verdicts(claims: list[dict[str, Any]]) -> list[str]:
    judged = [claim for claim in claims if claim["verdict"] != "not run"]
    later = any(claim["post_hoc"] for claim in judged)
    open_claims = [claim["text"] for claim in claims if claim["verdict"] == "not run"]
    outcomes = Counter(claim["verdict"] for claim in judged)
    counts = ", ".join(f"{words}: {outcomes[name]}" for name, words in COUNTED.items() if outcomes[name])
    rule = (
        f"{len(judged)} claims were tested; {counts}. The rule is in `mjp.reproduce.verdict`: differences are paired "
        "over seeds, and over pictures where every picture has a value; intervals are at 95 % and corrected for "
        f"{len(claims)} claims (Bonferroni). A claim holds if its whole interval does, and does not hold if its whole "
        "interval contradicts it. One seed has no interval."
        + (" Claims with a star were added when figures of their runs had been seen." if later else "")
    )
    rows = [
        [claim["text"] + (" \\*" if claim["post_hoc"] else ""), claim["published"], _difference(claim), _verdict(claim)]
        for claim in judged
    ]
    lines = [fill(rule, WIDTH), "", *markdown(["claim", "published", "difference here", "verdict"], rows)]
    return lines + (["", fill(f"Not run yet: {'; '.join(open_claims)}.", WIDTH)] if open_claims else [])


def _trades(claims: list[dict[str, Any]]) -> list[str]:
    """What every run that is judged by both gains under the jigsaw and pays without one."""
    judged = trades(claims)
    if not judged:
        return []
    proven = [trade.run for trade in judged if trade.is_worth_having]
    rule = (
        "Worth having is a network that is more accurate under the jigsaw and costs less than one point without it, "
        "each with its whole interval. " + (f"Here: {', '.join(proven)}." if proven else "So far none is shown to be.")
    )
    rows = [[trade.run, _difference(trade.gain), _difference(trade.price)] for trade in judged]
    return [fill(rule, WIDTH), "", *markdown(["run", "top-1 at γ = 0.5 gained", "top-1 gained without a jigsaw"], rows)]


def _doubts(doubts: list[dict[str, Any]], claims: list[dict[str, Any]]) -> list[str]:
    """What a sceptic asks, and the claims that answer it."""
    judged = {claim["id"]: claim for claim in claims if claim["verdict"] != "not run"}
    rows = [
        [doubt["question"], claim["text"], _difference(claim), _verdict(claim)]
        for doubt in doubts
        for claim in (judged[id] for id in doubt["claims"] if id in judged)
    ]
    return markdown(["doubt", "what was tested", "difference here", "verdict"], rows) if rows else []


def _verdict(claim: dict[str, Any]) -> str:
    return f"**{claim['verdict']}**"


def _difference(claim: dict[str, Any]) -> str:
    difference = claim["difference"]
    if difference is None:
        return "–"
    factor, digits = claim["factor"], claim["digits"]
    unit = " points" if factor == 100 else ""
    seeds = f"{difference['seeds']} seed" + ("" if difference["seeds"] == 1 else "s")
    if difference["pictures"]:
        seeds += f", {difference['pictures']:,} pictures"
    if difference["low"] is None:
        return f"{factor * difference['mean']:+.{digits}f}{unit}, {seeds}"
    low, high = (factor * difference[end] for end in ("low", "high"))
    return f"{factor * difference['mean']:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]{unit}, {seeds}"


def _table(table: dict[str, Any]) -> list[str]:
    """Mean ± standard deviation over seeds, the paper's figure in brackets."""
    columns = table["columns"]
    rows = []
    for row in (row for row in table["rows"] if row["seeds"]):
        entries = [_entry(row, **column) for column in columns]
        rows.append([f"{row['run']}: {row['title']}", str(row["seeds"]), *entries])
    note = f" Note: {table['note']}." if table["note"] else ""
    beside = "; in brackets the paper's figure (one run)" if any(r["published"] for r in table["rows"]) else ""
    return [
        fill(f"Mean ± standard deviation over seeds{beside}.{note}", WIDTH),
        "",
        *markdown(["run", "seeds", *(column["title"] for column in columns)], rows),
    ]


def _entry(row: dict[str, Any], quantity: str, title: str, factor: float, digits: int) -> str:
    figure, published = row["figures"].get(quantity), row["published"].get(quantity)
    beside = "" if published is None else f" ({published:g})"
    if figure is None:
        return f"–{beside}"
    spread = "" if figure["std"] is None else f" ± {factor * figure['std']:.{digits}f}"
    return f"{factor * figure['mean']:.{digits}f}{spread}{beside}"


def _corruptions(errors: dict[str, dict[str, float]]) -> list[str]:
    """A row per corruption, a column per run, then the paper's."""
    published = {model: dict(zip(TABLE_4, row, strict=False)) for model, row in CORRUPTIONS.rows.items()}
    rows = [
        [
            name.replace("_", " "),
            *(f"{100 * by_name[name]:.1f}" for by_name in errors.values()),
            *(figures.get(name, "–") for figures in published.values()),
        ]
        for name in next(iter(errors.values()))
    ]
    return [
        "Top-1 error in %, mean over five severities and all seeds; the last two columns are the paper's (ImageNet-C).",
        "",
        *markdown(["corruption", *errors, *(f"({model})" for model in published)], rows),
    ]


def _gates(gates: dict[str, Any]) -> list[str]:
    rows = [
        [name, f"{100 * gate['loss']:.1f} points", "yes" if gate["open"] else "no"]
        for name, gate in gates.items()
        if gate["loss"] is not None
    ]
    return [
        "A network that loses nothing when all its patches are shuffled does not use its positions, and no claim about",
        "positions counts on it.",
        "",
        *markdown(["run", "top-1 lost under the full jigsaw, positions kept", "uses its positions"], rows),
    ]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
