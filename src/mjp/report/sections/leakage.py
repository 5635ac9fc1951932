"""What a gradient gives away: the pictures of `mjp attack` and the table of `mjp audit`."""

from collections.abc import Sequence
from typing import Any

from mjp.report import published
from mjp.report.cells import NOTHING, Cell, measured, percent, point
from mjp.report.runs import Run, look

TITLE = "What a gradient gives away"
# Defences that leave training as it was, or whose cost is that of their jigsaw, which is measured
FREE = {"none", "withheld-pe", "batch", "jp", "mjp", "mjp-shared"}


def find(runs: Sequence[Run]) -> Any:
    attacks, audits = look(runs, "attack", _attack), look(runs, "audit", _audit)
    if not attacks and not audits:
        return None
    return {"attacks": attacks, "audits": audits, "published": published.LEAKAGE}


def _attack(run: Run) -> dict[str, Any]:
    names = list(dict.fromkeys(str(found["attack"]) for found in run.facts["findings"] if found["attack"] != "guess"))
    return {"model": next(iter(run.models)), "attacks": names, "picture": run.picture("attack.png")}


def _audit(run: Run) -> dict[str, Any]:
    settings = run.facts["settings"]
    return {
        "rows": [_row(row, run.models.get(row["model"], {})) for row in run.facts["rows"]],
        "headline": list(run.facts["headline"].values()),
        "data": "embedded CIFAR-10" if settings["data"] == "embedded" else settings["data"],
        "pictures": settings["pictures"],
        "seed": settings["seed"],
        "figure": run.picture("audit.png"),
    }


def _row(row: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    best = row["attacks"].get(row["best"], {})
    under = _under(row["defence"], model)
    return {
        "model": row["model"],
        "defence": row["defence"],
        "setting": row["setting"],
        "best": row["best"] or "none can run",
        "cells": [
            percent(under["top1"]) if under else NOTHING,
            percent(under["consistency"]) if under and "consistency" in under else NOTHING,
            measured(row["attacks"]["guess"]["psnr"]),
            measured(best["psnr"]) if best else NOTHING,
            *(_gain(row[f"gain_{name}"]) for name in ("psnr", "psnr_masked", "psnr_unmasked", "permuted_psnr")),
            percent(best["recovered"]) if best else NOTHING,
            measured(best["lpips"], digits=3) if best and best["lpips"] else NOTHING,
        ],
    }


def _under(defence: str, model: dict[str, Any]) -> dict[str, Any] | None:
    """Accuracy of the model as the defence uses it: under its jigsaw, if it has one; None where it was not measured."""
    parts = defence.split("+")
    if not model or not {part.partition(":")[0].strip() for part in parts} <= FREE:
        return None
    jigsaw = next((part.strip() for part in parts if part.strip().startswith(("mjp", "jp"))), None)
    if jigsaw is None:
        return {"top1": model["top1"]}
    name, _, ratio = jigsaw.partition(":")
    return point(model, float(ratio), name.startswith("mjp"))


def _gain(found: dict[str, Any] | None) -> Cell:
    return NOTHING if found is None else measured(found["db"])
