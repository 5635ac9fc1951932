"""The audit as a table for people: one line for each model, defence and setting."""

from typing import Any

from mjp.privacy.audit.summary import GAINS
from mjp.privacy.examine.finding import GUESS


def table(rows: list[dict[str, Any]]) -> str:
    width = max(len(row["defence"]) for row in rows)
    gains = f"{'gain':>6} {'masked':>7} {'unmasked':>9} {'any order':>10}"
    columns = f"{'best attack':<14} {'PSNR, dB':<20} {gains} {'exact, %':>8}"
    head = f"{'defence':<{width + 4}} {'top-1, %':>8} {'consistent, %':>13} {'guess':>6}  {columns}"
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        lines += ["", model, head, *(_line(row, width) for row in rows if row["model"] == model)]
    return "\n".join(lines) + "\n"


def _line(row: dict[str, Any], width: int) -> str:
    guess = row["attacks"][GUESS]["psnr"][0]
    top1, consistency = (_percent(row["usefulness"], name) for name in ("top1", "consistency"))
    start = f"{row['defence']:<{width}} ({row['setting']}) {top1:>8} {consistency:>13} {guess:6.1f}  "
    if row["best"] is None:
        return f"{start}none of these attacks can run"
    mean, low, high = row["attacks"][row["best"]]["psnr"]
    gains = [_gain(row[f"gain_{name}"]) for name in GAINS]
    psnr = f"{mean:.1f} [{low:.1f}, {high:.1f}]"
    gain_columns = f"{gains[0]:>6} {gains[1]:>7} {gains[2]:>9} {gains[3]:>10}"
    return f"{start}{row['best']:<14} {psnr:<20} {gain_columns} {_most_exact(row):>8}"


def _most_exact(row: dict[str, Any]) -> str:
    """The largest share of bit-exact patches that an attack reached; cells of older audits have none."""
    shares = [attack["exact"][0] for attack in row["attacks"].values() if attack.get("exact")]
    return f"{100 * max(shares):.1f}" if shares else "–"


def _percent(usefulness: dict[str, Any] | None, name: str) -> str:
    return "–" if usefulness is None else f"{100 * usefulness[name][0]:.1f}"


def _gain(gain: dict[str, Any] | None) -> str:
    return "–" if gain is None else f"{gain['db'][0]:+.1f}"
