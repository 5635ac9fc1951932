"""results.json of `mjp reproduce` as Markdown: docs/results.md is made of this."""

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import Any

from mjp.report.claims import Claim, fill_in, interval, judged, remark
from mjp.report.published import CORRUPTIONS, TABLE_4
from mjp.reproduce.collect import GATE
from mjp.reproduce.worth import trades

WIDTH = 118
COUNTED = {
    "holds": "held up",
    "does not hold": "contradicted",
    "undecided": "undecided",
    "gated": "not counted, because the plain network does not use its positions",
}


def document(body: dict[str, Any], level: int = 1) -> str:
    """One scale, under headings of a level."""
    scale = body["scale"]
    parts = [f"{'#' * level} {scale['title']}", fill(scale["about"], WIDTH), fill(_cost(body), WIDTH)]
    for title, lines in _sections(body):
        parts.append("\n".join([f"{'#' * (level + 1)} {title}", "", *lines]))
    return "\n\n".join(parts) + "\n"


def _cost(body: dict[str, Any]) -> str:
    seeds = ", ".join(map(str, body["seeds"]))
    return (
        f"`mjp reproduce {body['scale']['name']}`: {body['cells']} of {body['planned']} runs are done "
        f"({'seed' if len(body['seeds']) == 1 else 'seeds'} {seeds}), "
        f"{body['seconds'] / 3600:.1f} hours of one {'GPU' if body['scale']['gpu'] else 'core'}."
    )


def _sections(body: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    claims = judged(body["claims"])
    if findings := [line for text in body["findings"] for line in _bullet(text, claims)]:
        yield "Findings", findings
    if claims:
        if lines := _trades(body):
            yield "Is it worth having?", lines
        yield "Verdicts", _verdicts(body["claims"])
        if lines := _doubts(body["doubts"], claims):
            yield "Known doubts", lines
    for table in body["tables"].values():
        if any(row["seeds"] for row in table["rows"]):
            yield table["title"], _table(table)
    if body["corruptions"]:
        yield "By corruption", _corruptions(body["corruptions"])
    if body["claims"]:
        yield "The gate", _gates(body)


def _bullet(text: str, claims: dict[str, Claim]) -> list[str]:
    """A sentence as an item of a list; nothing while one of its claims has not been tested."""
    sentence = fill_in(text, claims)
    return [] if sentence is None else [_item(sentence)]


def _item(text: str) -> str:
    return fill(f"- {text}", WIDTH, subsequent_indent="  ")


def _verdicts(claims: list[dict[str, Any]]) -> list[str]:
    tested = list(judged(claims).values())
    untested = [claim["text"] for claim in claims if claim["verdict"] == "not run"]
    outcomes = Counter(claim["verdict"] for claim in tested)
    counts = ", ".join(f"{outcomes[name]} {words}" for name, words in COUNTED.items() if outcomes[name])
    usual = Counter(claim["difference"]["seeds"] for claim in tested).most_common(1)[0][0]
    rule = (
        f"Claims: {counts}. Every difference is that of the two runs named beside it, paired over seeds ({usual} "
        "unless the row says otherwise), and over pictures where every picture has a value. Intervals "
        f"are at 95 % and corrected for {min(claim['comparisons'] for claim in claims)} claims (Bonferroni). A claim "
        "holds if its whole interval lies on the claimed side, and does not hold if its whole interval lies on the "
        "other. Quantities with one value per seed (errors of a regression, seconds, the leak of a few pictures, mIoU) "
        "can hardly be decided with so few seeds. `mjp.reproduce.verdict` has the exact rule."
    )
    if any(claim["post_hoc"] for claim in tested):
        rule += (
            " Starred claims were added after results of their runs had been seen; their intervals are corrected for "
            f"all {len(claims)}."
        )
    rows = [
        [
            claim["text"] + (" \\*" if claim["post_hoc"] else ""),
            claim["published"],
            f"{claim['of']} − {claim['than']}",
            interval(claim) + _unusual(claim["difference"]["seeds"], usual),
            _verdict(claim),
        ]
        for claim in tested
    ]
    lines = [fill(rule, WIDTH), "", *markdown(["claim", "published", "runs", "difference here", "verdict"], rows)]
    return lines + (["", fill(f"Not run yet: {'; '.join(untested)}.", WIDTH)] if untested else [])


def _unusual(seeds: int, usual: int) -> str:
    return "" if seeds == usual else f", {seeds} seed{'' if seeds == 1 else 's'}"


def _verdict(claim: Claim) -> str:
    return f"**{claim['verdict']}**{remark(claim)}"


def _trades(body: dict[str, Any]) -> list[str]:
    """What every run that is judged by both gains under the jigsaw and pays without one."""
    pairs = trades(body["claims"])
    if not pairs:
        return []
    names = {trade.run: f"{body['models'][trade.run]['title']} ({trade.run})" for trade in pairs}
    proven = [names[trade.run] for trade in pairs if trade.is_worth_having]
    rule = (
        "A run is worth having if both intervals show it: more accurate than plain with half of the patches shuffled, "
        "and less than one point lost with none. "
        + (f"Shown for: {', '.join(proven)}." if proven else "None shows it.")
    )
    rows = [
        [
            names[trade.run],
            interval(trade.gain),
            "–" if trade.gain_not_told is None else interval(trade.gain_not_told),
            interval(trade.unshuffled),
        ]
        for trade in pairs
    ]
    head = ["top-1 minus plain's", "half of the patches shuffled", "the same, not told which", "none shuffled"]
    return [fill(rule, WIDTH), "", *markdown(head, rows)]


def _doubts(doubts: list[dict[str, Any]], claims: dict[str, dict[str, Any]]) -> list[str]:
    """What a sceptic asks, our answer, and the claims behind it."""
    lines = []
    for doubt in doubts:
        rows = [claims[id] for id in doubt["claims"] if id in claims]
        if rows:
            answer = fill_in(doubt["answer"], claims) or ""
            lines += ["", fill(f"**{doubt['question']}** {answer}".strip(), WIDTH), ""]
            lines += [_item(f"{claim['text']}: {interval(claim)}, {_verdict(claim)}") for claim in rows]
    return lines[1:]


def _table(table: dict[str, Any]) -> list[str]:
    """Mean ± standard deviation over seeds, the paper's figure in brackets."""
    columns = table["columns"]
    measured = [row for row in table["rows"] if row["seeds"]]
    rows = []
    for row in measured:
        entries = [_entry(row, **column) for column in columns]
        rows.append([f"{row['title']} ({row['run']})", str(row["seeds"]), *entries])
    about = "Mean ± standard deviation over seeds" if any(row["seeds"] > 1 for row in measured) else "One seed"
    beside = "; in brackets the paper's figure (one run)" if any(row["published"] for row in table["rows"]) else ""
    note = table["note"]
    return [
        fill(f"{about}{beside}." + (f" {note}." if note else ""), WIDTH),
        "",
        *markdown(["run", "seeds", *(column["title"] for column in columns)], rows),
    ]


def _entry(row: dict[str, Any], quantity: str, title: str, factor: float, digits: int) -> str:
    figure, published = row["figures"].get(quantity), row["published"].get(quantity)
    beside = "" if published is None else f" ({published:g})"
    if figure is None:
        return f"–{beside}"
    spread = "" if figure["std"] is None else f" ± {factor * figure['std']:.{digits}f}"
    return f"{factor * figure['mean']:.{digits}f}{spread}{beside}".replace("-", "−")


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
    about = (
        "Top-1 error in %, mean over five severities and all seeds. The last two columns are the paper's, on "
        "ImageNet-C: other pictures and other classes, so compare within the first columns or within the last. "
        "The ten columns of the paper's MJP row average 43.24, where it prints 41.5."
    )
    return [fill(about, WIDTH), "", *markdown(["corruption", *errors, *(f"({model})" for model in published)], rows)]


def _gates(body: dict[str, Any]) -> list[str]:
    rows = [
        [
            f"{body['models'][name]['title']} ({name})",
            f"{100 * gate['loss']:.1f} points",
            "yes" if gate["open"] else "no",
        ]
        for name, gate in body["gates"].items()
        if gate["loss"] is not None
    ]
    about = (
        f"A network depends on the order of its patches if it loses more than {100 * GATE:.0f} points of top-1 when "
        "all of them are shuffled and every slot keeps its position. A claim about positions does not count if its "
        "plain network does not."
    )
    head = ["run", "top-1 lost when all patches are shuffled", "depends on their order"]
    return [fill(about, WIDTH), "", *markdown(head, rows)]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
