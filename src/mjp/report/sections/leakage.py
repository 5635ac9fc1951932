"""What a gradient gives away: the pictures of `mjp attack` and the table of `mjp audit`."""

from collections.abc import Sequence
from typing import Any

from mjp.report import published
from mjp.report.cells import NOTHING, Cell, measured, percent
from mjp.report.runs import Run, from_runs

TITLE = "What a gradient gives away"
KINDS: tuple[str, ...] = ("attack", "attack-update", "audit")


def gather(runs: Sequence[Run]) -> Any:
    attacks = [*from_runs(runs, "attack", _attack), *from_runs(runs, "attack-update", _attack)]
    audits = from_runs(runs, "audit", _audit)
    if not attacks and not audits:
        return None
    return {"attacks": attacks, "audits": audits, "published": published.LEAKAGE}


def _attack(run: Run) -> dict[str, Any]:
    attacks = dict.fromkeys(str(finding["attack"]) for finding in run.body["findings"])
    names = ", ".join(name for name in attacks if name != "guess")
    model = next(iter(run.models))
    if run.kind == "attack-update":
        alt = f"What these attacks recover from an update: {names}."
        caption = f"{model}: what the server can see of an update. The pictures behind it are not known here."
    else:
        alt = f"One row for each defence: the picture, the data-free guess, and what these attacks recover: {names}."
        caption = f"{model}: the picture, the data-free guess, and what the server can see."
    return {"picture": run.picture("attack.png"), "alt": alt, "caption": caption}


def _audit(run: Run) -> dict[str, Any]:
    settings = run.settings
    return {
        "rows": [_row(row) for row in run.body["rows"]],
        "headline": list(run.body["headline"].values()),
        "data": "embedded CIFAR-10" if settings["data"] == "embedded" else settings["data"],
        "pictures": settings["pictures"],
        "seed": settings["seed"],
        "figure": run.picture("audit.png"),
    }


def _row(row: dict[str, Any]) -> dict[str, Any]:
    best = row["attacks"].get(row["best"], {})
    useful = row.get("usefulness")  # the audit asked the defence what may be claimed; older files do not say
    return {
        "model": row["model"],
        "defence": row["defence"],
        "setting": row["setting"],
        "best": row["best"] or "none can run",
        "cells": [
            *(percent(useful[name]) if useful else NOTHING for name in ("top1", "consistency")),
            measured(row["attacks"]["guess"]["psnr"]),
            measured(best["psnr"]) if best else NOTHING,
            *(_gain(row[f"gain_{name}"]) for name in ("psnr", "psnr_masked", "psnr_unmasked", "permuted_psnr")),
            percent(best["recovered"]) if best else NOTHING,
            measured(best["lpips"], digits=3) if best and best["lpips"] else NOTHING,
        ],
    }


def _gain(gain: dict[str, Any] | None) -> Cell:
    return NOTHING if gain is None else measured(gain["db"])
