"""From the files of the cells to tables and verdicts: pure functions of what was measured."""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mjp.evaluation.robustness.metrics import ALEXNET
from mjp.reproduce.cell_file import Cells
from mjp.reproduce.outcomes import unpack
from mjp.reproduce.quantities import style
from mjp.reproduce.scale import Claim, Scale, Table
from mjp.reproduce.verdict import Difference, Outcome, Variance, decide, paired_difference, seed_variance

GATE = 0.02  # share of right answers that a network must lose under the full jigsaw to count as one that uses positions


def values_of(cell: dict[str, Any], quantity: str) -> NDArray[np.float64] | None:
    """A quantity of one cell: (P,) for what every picture has, a single number for the rest, None if not measured.

    top1, top1@γ, consistency@γ     one value per picture, under the model's own treatment of masked slots
    NAME_kept@γ                     the same with every slot's own position: the model is not told what was shuffled
    NAME_uniform@γ                  the same under a shuffle of single patches instead of blocks
    diff_norm@γ, diff_relative@γ    one number
    mce                             error by corruption, each over AlexNet's on ImageNet-C
    anything else                   a number among the figures of the cell
    """
    name, _, ratio = quantity.partition("@")
    outcomes = cell["outcomes"]
    if name == "top1" and not ratio:
        return unpack(outcomes["right"], outcomes["pictures"]).astype(np.float64)
    if ratio:
        sampler = "uniform" if name.endswith("_uniform") else "blockwise"
        name = name.removesuffix("_uniform")
        point = _point(outcomes["points"], float(ratio), sampler=sampler, kept=name.endswith("_kept"))
        name = name.removesuffix("_kept")
        if point is None:
            return None
        if name in ("top1", "consistency"):
            return unpack(point["right" if name == "top1" else "same"], point["pictures"]).astype(np.float64)
        return np.asarray(point[name], dtype=np.float64)
    if name == "mce" and (errors := cell["figures"].get("corruption_by_name")):
        return np.asarray(np.mean([error / ALEXNET[corruption] for corruption, error in errors.items()]))
    value = cell["figures"].get(name)
    return None if value is None else np.asarray(value, dtype=np.float64)


def _point(points: list[dict[str, Any]], ratio: float, *, sampler: str, kept: bool) -> dict[str, Any] | None:
    """The point at a ratio: with every position kept, or with E_unk if the model has one."""
    fitting = [p for p in points if abs(p["ratio"] - ratio) < 1e-9 and p["sampler"] == sampler]
    if kept:
        return next((p for p in fitting if not p["unknown"]), None)
    return max(fitting, key=lambda p: p["unknown"], default=None)


def gate(cells: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Whether a run uses its positions: what it loses when every patch is shuffled, positions kept."""
    losses = []
    for cell in cells.values():
        right, shuffled = values_of(cell, "top1"), values_of(cell, "top1_kept@1")
        if right is not None and shuffled is not None:
            losses.append(float(right.mean() - shuffled.mean()))
    loss = sum(losses) / len(losses) if losses else None
    return {"loss": loss, "open": loss is not None and loss > GATE}


def difference(scale: Scale, cells: Cells, claim: Claim) -> Difference | None:
    """X − Y of a claim over the seeds that both runs have, with an interval that allows for the other claims."""
    seeds = sorted(cells[claim.of].keys() & cells[claim.than].keys())
    pairs = [[values_of(cells[run][seed], claim.quantity) for run in (claim.of, claim.than)] for seed in seeds]
    if not pairs or any(value is None for pair in pairs for value in pair):
        return None
    rows = [np.asarray(x) - np.asarray(y) for x, y in pairs]
    differences = np.stack(rows)  # (S, P) or (S,)
    pooled = None
    family = scale.runs[claim.of].family
    if differences.ndim == 2 and family == scale.runs[claim.than].family:
        relatives = {run: cells[run] for run in cells if scale.runs[run].family == family}
        pooled = _seed_variance(relatives, claim.quantity, seeds)
    return paired_difference(differences, comparisons=comparisons(scale, claim), of_seeds=pooled)


def comparisons(scale: Scale, claim: Claim) -> int:
    """How many claims an interval allows for: a claim that came later leaves those before it as they are."""
    return sum(claim.post_hoc or not other.post_hoc for other in scale.claims)


def _seed_variance(cells: Cells, quantity: str, seeds: list[int]) -> Variance | None:
    """How a run's mean varies from seed to seed, from all runs that have these seeds."""
    rows = [
        [values_of(by_seed[seed], quantity) for seed in seeds]
        for by_seed in cells.values()
        if by_seed.keys() >= set(seeds)
    ]
    complete = [row for row in rows if all(values is not None for values in row)]
    return seed_variance(np.array([[np.mean(values) for values in row if values is not None] for row in complete]))


def judge(scale: Scale, cells: Cells) -> list[dict[str, Any]]:
    """Every claim with its interval and verdict."""
    verdicts = []
    for claim in scale.claims:
        result = difference(scale, cells, claim)
        outcome: Outcome = "not run" if result is None else decide(result, margin=claim.margin)
        if result is not None and claim.baseline is not None:
            outcome = _gated(outcome, gate(cells[claim.baseline]))
        interval = None if result is None else asdict(result)
        printed = style(claim.quantity)
        numbers = {"factor": printed.factor, "digits": max(2, printed.digits), "unit": printed.unit}
        corrected = {"comparisons": comparisons(scale, claim)}
        verdicts.append({**asdict(claim), **numbers, **corrected, "difference": interval, "verdict": outcome})
    return verdicts


def _gated(outcome: Outcome, plain: dict[str, Any]) -> Outcome:
    """A verdict on positions, which waits for the plain network and counts only if that uses its positions."""
    if plain["loss"] is None:
        return "not run"
    return outcome if plain["open"] else "gated"


def summarise(scale: Scale, cells: Cells) -> dict[str, Any]:
    """What results.json holds: tables, gates, claims with verdicts, and what it cost."""
    seeds_done = sorted({seed for seeds in cells.values() for seed in seeds})
    everything = [cell for seeds in cells.values() for cell in seeds.values()]
    return {
        "models": {
            name: {"title": scale.runs[name].title, "seeds": len(seeds)} for name, seeds in cells.items() if seeds
        },
        "scale": {"name": scale.name, "title": scale.title, "about": scale.about, "gpu": scale.gpu},
        "tables": {name: _table(scale, table, cells) for name, table in scale.tables.items()},
        "gates": {name: gate(seeds) for name, seeds in cells.items() if seeds},
        "claims": judge(scale, cells),
        "doubts": [asdict(doubt) for doubt in scale.doubts],
        "corruptions": _by_corruption(cells),
        "cells": len(everything),
        "planned": len(scale.runs) * max(len(scale.seeds), len(seeds_done)),
        "seeds": seeds_done,
        "seconds": sum(cell["seconds"] for cell in everything),
    }


def _table(scale: Scale, table: Table, cells: Cells) -> dict[str, Any]:
    rows = [
        {
            "run": name,
            "title": scale.runs[name].title,
            "seeds": len(cells[name]),
            "figures": {quantity: _mean(cells[name], quantity) for quantity in table.columns},
            "published": table.published.get(name, {}),
        }
        for name in table.runs
    ]
    columns = [{"quantity": quantity, **style(quantity)._asdict()} for quantity in table.columns]
    return {"title": table.title, "note": table.note, "columns": columns, "rows": rows}


def _by_corruption(cells: Cells) -> dict[str, dict[str, float]]:
    """{run: {corruption: mean error over seeds}} of the runs on which it was measured."""
    rows = {}
    for run, by_seed in cells.items():
        errors = [cell["figures"]["corruption_by_name"] for cell in by_seed.values() if "corruption" in cell["figures"]]
        if errors:
            rows[run] = {name: float(np.mean([error[name] for error in errors])) for name in errors[0]}
    return rows


def _mean(cells: dict[int, dict[str, Any]], quantity: str) -> dict[str, float | None] | None:
    """Mean over seeds, and their standard deviation."""
    values = [values_of(cell, quantity) for cell in cells.values()]
    means = np.array([value.mean() for value in values if value is not None])
    if not len(means):
        return None
    return {"mean": float(means.mean()), "std": float(means.std(ddof=1)) if len(means) > 1 else None}
