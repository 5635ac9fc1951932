"""From cells to rows: for each model and defence the mean over pictures of every attack, the best attack, and what it
gains over the data-free guess, with 95 % bootstrap intervals over pictures.
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
        scores = [score for finding in findings for score in finding["scores"].get(setting, [])]
        if all(finding["refused"] for finding in findings):
            refused[name] = findings[0]["refused"]
        else:
            attacks[name] = {**_means(scores, seed), **_extras(findings, scores)}
    rivals = [name for name in attacks if name != GUESS]
    best = max(rivals, key=lambda name: attacks[name]["psnr"][0], default=None)
    return {"attacks": attacks, "refused": refused, "best": best, **_gains(updates, setting, seed, rivals)}


def _fill_with_guess(update: Findings) -> Findings:
    """An attacker whose attack refuses still has the guess: its scores take the place of the missing ones."""
    guess = next(finding["scores"] for finding in update if finding["attack"] == GUESS)
    return [{**finding, "scores": guess} if finding["refused"] else finding for finding in update]


def _means(scores: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    """{quantity: (mean, low, high)}, None where it is not available for every picture."""
    means: dict[str, Any] = {}
    for quantity in QUANTITIES:
        values: list[Any] = [score.get(quantity) for score in scores]  # None: not available, or not in older cells
        means[quantity] = None if None in values else _interval(values, seed)
    return means


def _extras(findings: Findings, scores: list[dict[str, Any]]) -> dict[str, Any]:
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
        "refusals": sum(finding["refused"] is not None for finding in findings),  # updates scored by the guess
    }


def _gains(updates: list[Findings], setting: str, seed: int, rivals: list[str]) -> dict[str, Any]:
    """Gain of the best attack over the guess in dB, picture by picture: all patches, masked and unmasked apart, and all
    patches in the best of all orders.

    The best attack is chosen for each quantity by its mean: masked patches may have another enemy than unmasked ones.
    """
    gains: dict[str, Any] = {}
    for quantity in GAINS:
        guess = _column(updates, GUESS, setting, quantity)
        if None in guess or not rivals:
            gains[f"gain_{quantity}"] = None
            continue
        columns = {name: _column(updates, name, setting, quantity) for name in rivals}
        best = max(columns, key=lambda name: sum(columns[name]))
        differences = [a - b for a, b in zip(columns[best], guess, strict=True)]
        gains[f"gain_{quantity}"] = {"attack": best, "db": _interval(differences, seed)}
    return gains


def _column(updates: list[Findings], attack: str, setting: str, quantity: str) -> list[Any]:
    return [
        score.get(quantity)
        for update in updates
        for finding in update
        if finding["attack"] == attack
        for score in finding["scores"].get(setting, [])
    ]


def _interval(values: list[float], seed: int) -> Interval:
    bootstrap = Bootstrap(1, seed=seed)
    bootstrap.add(torch.tensor(values, dtype=torch.float64).unsqueeze(1))
    return bootstrap.intervals()[0]
