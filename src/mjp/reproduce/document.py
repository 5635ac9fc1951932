"""results.json of `mjp reproduce` as a page of Markdown: docs/results.md is made by this."""

from typing import Any

COLUMNS = {
    "top1": ("top-1, %", 100, 2),
    "consistency": ("consistency at γ = .5, %", 100, 2),
    "top1_shuffled": ("top-1 at γ = .5, %", 100, 2),
    "diff_relative": ("feature shift at γ = .5", 1, 3),
    "place_error": ("position error, patches", 1, 3),
    "corruption": ("error under corruptions, %", 100, 2),
    "step_cost": ("cost of a training step, %", 100, 1),
    "leak_guess": ("guess, dB", 1, 1),
    "leak_a": ("leak (a), dB", 1, 1),
    "leak_b": ("leak (b), dB", 1, 1),
    "leak_c": ("leak (c), dB", 1, 1),
    "miou": ("mIoU, %", 100, 2),
    "macc": ("mAcc, %", 100, 2),
}
SHARES = ("top1", "consistency", "corruption", "step_cost", "top1_halfway", "miou", "macc")  # shown in points


def document(body: dict[str, Any]) -> str:
    """The page."""
    scale = body["scale"]
    parts = [f"# {scale['title']}", scale["about"], _verdicts(body["claims"]), *map(_table, body["tables"].values())]
    parts += [_gates(body["gates"]), _cost(body)]
    return "\n\n".join(parts) + "\n"


def _verdicts(claims: list[dict[str, Any]]) -> str:
    lines = [
        "## Verdicts",
        "",
        "The rule (`mjp.reproduce.verdict`): differences paired over pictures and seeds, intervals at 95 % corrected",
        "for the number of claims (Bonferroni). A claim holds if its whole interval does.",
        "",
        "| claim | published | difference here | verdict |",
        "|---|---|---|---|",
    ]
    for claim in claims:
        lines.append(f"| {claim['text']} | {claim['published']} | {_difference(claim)} | **{claim['verdict']}** |")
    return "\n".join(lines)


def _difference(claim: dict[str, Any]) -> str:
    difference = claim["difference"]
    if difference is None:
        return "–"
    points = claim["quantity"].partition("@")[0] in SHARES
    scale, unit = (100, " points") if points else (1, "")
    if difference["low"] is None:
        return f"{scale * difference['mean']:+.2f}{unit} ({difference['seeds']} seed: no interval)"
    low, high = (scale * difference[end] for end in ("low", "high"))
    return f"{scale * difference['mean']:+.2f} [{low:+.2f}, {high:+.2f}]{unit}"


def _table(table: dict[str, Any]) -> str:
    """Mean ± standard deviation over seeds, the paper's figure in brackets."""
    names = [name for name in COLUMNS if any(row["figures"].get(name) for row in table["rows"])]
    lines = [
        f"## {table['title']}",
        "",
        "Mean ± standard deviation over seeds; the paper's figure (DeiT-S, ImageNet, one run) in brackets."
        + (f" Note: {table['note']}." if table["note"] else ""),
        "",
        "| run | seeds | " + " | ".join(COLUMNS[name][0] for name in names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for row in table["rows"]:
        entries = [_entry(row["figures"].get(name), row["published"].get(name), *COLUMNS[name][1:]) for name in names]
        lines.append(f"| {row['run']}: {row['title']} | {row['seeds']} | " + " | ".join(entries) + " |")
    return "\n".join(lines)


def _entry(figure: dict[str, float] | None, published: float | None, scale: float, digits: int) -> str:
    if figure is None:
        return "–"
    spread = "" if figure["std"] is None else f" ± {scale * figure['std']:.{digits}f}"
    beside = "" if published is None else f" ({published:g})"
    return f"{scale * figure['mean']:.{digits}f}{spread}{beside}"


def _gates(gates: dict[str, Any]) -> str:
    lines = [
        "## The gate",
        "",
        "A network that loses nothing when all its patches are shuffled does not use its positions, and no claim about",
        "positions counts on it.",
        "",
        "| run | top-1 lost under the full jigsaw, positions kept | uses its positions |",
        "|---|---|---|",
    ]
    for name, gate in gates.items():
        if gate["loss"] is not None:
            lines.append(f"| {name} | {100 * gate['loss']:.1f} points | {'yes' if gate['open'] else 'no'} |")
    return "\n".join(lines)


def _cost(body: dict[str, Any]) -> str:
    return (
        f"## Cost\n\n{body['cells']} runs, {body['seconds'] / 3600:.1f} hours of one core in all.\n\n"
        f"Command: `mjp reproduce {body['scale']['name']}`, seeds {', '.join(map(str, body['seeds']))}."
    )
