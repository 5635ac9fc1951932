"""From cells to rows: for each model and defence the mean over pictures of every attack, the best attack, and what it
gains over the data-free guess, with 95 % bootstrap intervals.

Pictures of one batch share an update, so intervals resample updates, not pictures.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from mjp.common.stats import Bootstrap, Interval
from mjp.privacy.audit.cells import Cells, Findings
from mjp.privacy.examine.finding import GUESS

QUANTITIES = (
    *("psnr", "ssim", "lpips", "mse", "fft2d", "recovered", "permuted_psnr", "psnr_masked", "psnr_unmasked"),
    *("exact", "exact_masked", "exact_unmasked"),
)
# metrics for which the gain over the guess is reported
GAINS = ("psnr", "psnr_masked", "psnr_unmasked", "permuted_psnr")


def summarise(cells: Cells, models: Iterable[str], defences: Sequence[str], *, seed: int) -> list[dict[str, Any]]:
    """One row for each model, defence and setting."""
    rows = []
    for model in models:
        for defence in defences:
            updates = [cell for key, cell in cells.findings.items() if (key.model, key.defence) == (model, defence)]
            settings = {setting for update in updates for finding in update for setting in finding["scores"]}
            for setting in sorted(settings):
                rows.append({"model": model, "defence": defence, "setting": setting, **_row(updates, setting, seed)})
    return rows


def _row(updates: list[Findings], setting: str, seed: int) -> dict[str, Any]:
    names = list(dict.fromkeys(finding["attack"] for update in updates for finding in update))
    updates = [_fill_with_guess(update) for update in updates]
    attacks, refused = {}, {}
    for name in names:
        findings = [finding for update in updates for finding in update if finding["attack"] == name]
        if all(finding["refused"] for finding in findings):
            refused[name] = findings[0]["refused"]
        else:
            means = {quantity: _mean(_columns(updates, name, setting, quantity), seed) for quantity in QUANTITIES}
            attacks[name] = {**means, **_extras(findings, setting)}
    rivals = [name for name in attacks if name != GUESS]
    best = max(rivals, key=lambda name: attacks[name]["psnr"][0], default=None)
    return {"attacks": attacks, "refused": refused, "best": best, **_gains(updates, setting, seed, rivals)}


def _fill_with_guess(update: Findings) -> Findings:
    """An attacker whose attack refuses still has the guess: its scores take the place of the missing ones."""
    guess = next(finding["scores"] for finding in update if finding["attack"] == GUESS)
    return [{**finding, "scores": guess} if finding["refused"] else finding for finding in update]


def _mean(columns: list[list[Any]], seed: int) -> Interval | None:
    """(mean, low, high), None where the quantity is not available for every picture, or not in older cells."""
    return None if any(None in column for column in columns) else _interval(columns, seed)


def _extras(findings: Findings, setting: str) -> dict[str, Any]:
    scores = [score for finding in findings for score in finding["scores"].get(setting, [])]
    conditions, matches = (
        [finding["facts"][name] for finding in findings if finding["facts"].get(name) is not None]
        for name in ("condition", "match")
    )
    return {
        "worst_picture": max(score["psnr"] for score in scores),  # the picture that leaks most
        "condition": sum(conditions) / len(conditions) if conditions else None,
        "match": sum(matches) / len(matches) if matches else None,
        "seconds": sum(finding["seconds"] for finding in findings) / len(findings),
        "pictures": len(scores),
        "updates": len(findings),
        "refusals": sum(finding["refused"] is not None for finding in findings),  # updates scored by the guess
        **_rounds(findings),
    }


def _rounds(findings: Findings) -> dict[str, Any]:
    """For an attack on several rounds, how many it took until each picture was bit-exact; None: all were too few."""
    name = "rounds_until_exact"
    counts = [finding["facts"][name] for finding in findings if name in finding["facts"]]
    return {name: counts} if counts else {}


def _gains(updates: list[Findings], setting: str, seed: int, rivals: list[str]) -> dict[str, Any]:
    """Gain of the best attack over the guess in dB, picture by picture: all patches, masked and unmasked apart, and all
    patches in the best of all orders.

    The best attack is chosen for each quantity by its mean: masked patches may have another enemy than unmasked ones.
    `upper` is the highest upper end of the intervals of all attacks: what is claimed to hold must hold there.
    """
    gains: dict[str, Any] = {}
    for quantity in GAINS:
        guess = _columns(updates, GUESS, setting, quantity)
        if any(None in column for column in guess) or not rivals:
            gains[f"gain_{quantity}"] = None
            continue
        intervals = {
            name: _interval(_differences(_columns(updates, name, setting, quantity), guess), seed) for name in rivals
        }
        best = max(intervals, key=lambda name: intervals[name].mean)
        upper = max(interval.high for interval in intervals.values())
        gains[f"gain_{quantity}"] = {"attack": best, "db": intervals[best], "upper": upper}
    return gains


def _differences(left: list[list[float]], right: list[list[float]]) -> list[list[float]]:
    return [[a - b for a, b in zip(*columns, strict=True)] for columns in zip(left, right, strict=True)]


def _columns(updates: list[Findings], attack: str, setting: str, quantity: str) -> list[list[Any]]:
    """For every update the values of its pictures."""
    return [
        [score.get(quantity) for score in finding["scores"].get(setting, [])]
        for update in updates
        for finding in update
        if finding["attack"] == attack
    ]


def _interval(columns: list[list[float]], seed: int) -> Interval:
    """Of the mean over all pictures; updates, which have equally many, are resampled whole."""
    bootstrap = Bootstrap(1, seed=seed)
    means = [sum(column) / len(column) for column in columns if column]
    bootstrap.add(torch.tensor(means, dtype=torch.float64).unsqueeze(1))
    return bootstrap.intervals()[0]
