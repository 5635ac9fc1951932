"""An audit: models × defences × pictures × attacks, kept line by line so that it can be killed and taken up again.

cells.jsonl    first line: the settings; then one line for the weights of each model, and one for each finished
               (model, defence, batch), with all attacks
summary        for each model and defence the mean over pictures of every attack, the best attack, and what it gains
               over the data-free guess, with 95 % bootstrap intervals over pictures
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.common.stats import Bootstrap, Interval
from mjp.privacy.client.defences import Defence, parse
from mjp.privacy.examine import GUESS

QUANTITIES = ("psnr", "ssim", "lpips", "mse", "fft2d", "recovered", "permuted_psnr", "psnr_masked", "psnr_unmasked")
# what an attack gains over the guess is said of these
GAINS = ("psnr", "psnr_masked", "psnr_unmasked", "permuted_psnr")
MARGIN = 1.0  # dB over the data-free guess below which a defence is said to hold


@dataclass(frozen=True)
class Key:
    model: str
    defence: str
    batch: int


class Cells:
    """The file of finished cells."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.found, self.weights = path, dict[Key, list[dict[str, Any]]](), dict[str, str]()
        content = path.read_bytes() if path.is_file() else b""
        lines = [_read(line) for line in content.splitlines()]
        if not lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"settings": settings}) + "\n"
            write_atomically(path, lambda temporary: temporary.write_text(text))
        elif other := _other(lines[0].get("settings"), settings):
            raise InputError(
                f"{path} belongs to an audit with other settings ({other}): choose another --out, or remove it"
            )
        for line in lines[1:]:
            self._keep(line)
        if content and not content.endswith(b"\n"):
            self._write("\n")

    def _keep(self, line: dict[str, Any]) -> None:
        match line:
            case {"model": str(model), "weights": str(weights)}:
                self.weights[model] = weights
            case {"model": str(model), "defence": str(defence), "batch": int(batch), "findings": list(findings)}:
                self.found[Key(model, defence, batch)] = findings

    def _write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def expect(self, model: str, weights: str) -> None:
        """Refuse to go on with a model whose weights (a hash of them) are not those of the finished cells."""
        known = self.weights.get(model)
        if known is None:
            self.weights[model] = weights
            self._write(json.dumps({"model": model, "weights": weights}) + "\n")
        elif known != weights:
            raise InputError(
                f"{self.path} holds findings on {model} with other weights: choose another --out, or remove it"
            )

    def add(self, key: Key, findings: list[dict[str, Any]]) -> None:
        line = json.dumps({"model": key.model, "defence": key.defence, "batch": key.batch, "findings": findings})
        self._write(line + "\n")
        self.found[key] = findings


def _read(line: bytes) -> dict[str, Any]:
    """A line of the file; nothing, if a kill or a bad disk tore it."""
    try:
        found = json.loads(line)
    except ValueError:  # no JSON, or no UTF-8
        return {}
    return found if isinstance(found, dict) else {}


def _other(found: Any, settings: dict[str, Any]) -> str:
    """The names of the settings that differ; empty if none does."""
    if not isinstance(found, dict):
        return "its first line is torn"
    known = json.loads(json.dumps(settings))
    return ", ".join(sorted(name for name in known.keys() | found.keys() if known.get(name) != found.get(name)))


def summarise(cells: Cells, models: Iterable[str], defences: Iterable[str], *, seed: int) -> list[dict[str, Any]]:
    """One row for each model, defence and setting."""
    rows = []
    for model in models:
        for defence in defences:
            findings = [found for key, found in cells.found.items() if (key.model, key.defence) == (model, defence)]
            for setting in sorted({name for found in findings for one in found for name in one["scores"]}):
                rows.append({"model": model, "defence": defence, "setting": setting, **_row(findings, setting, seed)})
    return rows


def _row(findings: list[list[dict[str, Any]]], setting: str, seed: int) -> dict[str, Any]:
    names = list(dict.fromkeys(one["attack"] for found in findings for one in found))
    findings = [_with_guesses(found) for found in findings]
    attacks, refused = {}, {}
    for name in names:
        mine = [one for found in findings for one in found if one["attack"] == name]
        scores = [score for one in mine for score in one["scores"].get(setting, [])]
        if all(one["refused"] for one in mine):
            refused[name] = mine[0]["refused"]
        else:
            attacks[name] = {**_means(scores, seed), **_extras(mine, scores)}
    rivals = [name for name in attacks if name != GUESS]
    best = max(rivals, key=lambda name: attacks[name]["psnr"][0], default=None)
    return {"attacks": attacks, "refused": refused, "best": best, **_gains(findings, setting, seed, rivals)}


def _with_guesses(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An attacker whose attack refuses still has the guess: its scores stand where an attack has none."""
    guess = next(one["scores"] for one in found if one["attack"] == GUESS)
    return [{**one, "scores": guess} if one["refused"] else one for one in found]


def _means(scores: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    """{quantity: (mean, low, high)}, None where it is not available for every picture."""
    found: dict[str, Any] = {}
    for quantity in QUANTITIES:
        values = [score[quantity] for score in scores]
        found[quantity] = None if None in values else _interval(values, seed)
    return found


def _extras(findings: list[dict[str, Any]], scores: list[dict[str, Any]]) -> dict[str, Any]:
    conditions = [one["facts"]["condition"] for one in findings if "condition" in one["facts"]]
    matches = [one["facts"]["match"] for one in findings if one["facts"].get("match") is not None]
    return {
        "worst_picture": max(score["psnr"] for score in scores),  # the picture that was given away most
        "condition": sum(conditions) / len(conditions) if conditions else None,
        "match": sum(matches) / len(matches) if matches else None,
        "seconds": sum(one["seconds"] for one in findings) / len(findings),
        "pictures": len(scores),
        "refusals": sum(one["refused"] is not None for one in findings),  # updates on which the guess stands in
    }


def _gains(findings: list[list[dict[str, Any]]], setting: str, seed: int, rivals: list[str]) -> dict[str, Any]:
    """Gain of the best attack over the guess in dB, picture by picture: all patches, masked and unmasked apart, and all
    patches in the best of all orders.

    The best attack is chosen for each quantity on its mean: masked patches may have another enemy than unmasked ones.
    """
    gains: dict[str, Any] = {}
    for quantity in GAINS:
        guess = _column(findings, GUESS, setting, quantity)
        if None in guess or not rivals:
            gains[f"gain_{quantity}"] = None
            continue
        columns = {name: _column(findings, name, setting, quantity) for name in rivals}
        best = max(columns, key=lambda name: sum(columns[name]))
        differences = [a - b for a, b in zip(columns[best], guess, strict=True)]
        gains[f"gain_{quantity}"] = {"attack": best, "db": _interval(differences, seed)}
    return gains


def _column(findings: list[list[dict[str, Any]]], name: str, setting: str, quantity: str) -> list[Any]:
    return [
        score[quantity]
        for found in findings
        for one in found
        if one["attack"] == name
        for score in one["scores"].get(setting, [])
    ]


def _interval(values: list[float], seed: int) -> Interval:
    bootstrap = Bootstrap(1, seed=seed)
    bootstrap.add(torch.tensor(values, dtype=torch.float64).unsqueeze(1))
    return bootstrap.intervals()[0]


def smallest_ratio(rows: list[dict[str, Any]], model: str, quantity: str) -> float | None:
    """The smallest γ from which on the best attack gains less than 1 dB over the guess, at it and at every larger γ.

    Only plain `mjp:γ` counts, in the setting that gains more: smoothness alone puts masked patches back, so (c) may.
    None: no measured γ is enough.
    """
    gains: dict[float, float] = {}
    for row in rows:
        defence = parse(row["defence"])
        plain = replace(defence, text="") == Defence(jigsaw="mjp", ratio=defence.ratio, text="")
        if row["model"] == model and plain and row[f"gain_{quantity}"]:
            gain = row[f"gain_{quantity}"]["db"][0]
            gains[defence.ratio] = max(gain, gains.get(defence.ratio, gain))
    enough = None
    for ratio in sorted(gains, reverse=True):
        if gains[ratio] >= MARGIN:
            break
        enough = ratio
    return enough
