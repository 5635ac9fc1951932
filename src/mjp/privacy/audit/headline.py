"""The headline of an audit: the smallest γ at which the best attack gains less than 1 dB over the data-free guess."""

from collections.abc import Iterable
from typing import Any

from mjp.privacy.combination import parse

MARGIN = 1.0  # dB over the data-free guess, below which a defence is reported to hold


def headlines(rows: list[dict[str, Any]], models: Iterable[str]) -> dict[str, str]:
    """One sentence for each model that was audited under mjp:γ."""
    sentences = {}
    for model in models:
        if not any(row["model"] == model and row["defence"].startswith("mjp:") for row in rows):
            continue
        parts = []
        for quantity, name in (("psnr_masked", "masked"), ("psnr_unmasked", "unmasked")):
            ratio = smallest_ratio(rows, model, quantity)
            parts.append(f"{name} patches: " + ("no measured γ" if ratio is None else f"γ = {ratio:g}"))
        sentences[model] = f"{model}: best attack gains less than {MARGIN:g} dB from there on: {'; '.join(parts)}"
    return sentences


def smallest_ratio(rows: list[dict[str, Any]], model: str, quantity: str) -> float | None:
    """The smallest γ from which on the best attack gains less than 1 dB over the guess, at it and at every larger γ.

    Only plain `mjp:γ` counts, in the setting that gains more: smoothness alone puts masked patches back, so (c) may.
    None: no measured γ is enough.
    """
    gains: dict[float, float] = {}
    for row in rows:
        ratio = _plain_ratio(row["defence"])
        if row["model"] == model and ratio is not None and row[f"gain_{quantity}"]:
            gain = row[f"gain_{quantity}"]["db"][0]
            gains[ratio] = max(gain, gains.get(ratio, gain))
    enough = None
    for ratio in sorted(gains, reverse=True):
        if gains[ratio] >= MARGIN:
            break
        enough = ratio
    return enough


def _plain_ratio(text: str) -> float | None:
    """γ of mjp:γ; None for other defences and combinations."""
    parts = parse(text).parts
    return parts[0].number if [part.defence.name for part in parts] == ["mjp"] else None
