"""Federated training: accuracy over the rounds and what the updates gave away, from `mjp federate` and the adapters."""

from collections.abc import Sequence
from typing import Any

from mjp.report.cells import NOTHING, Cell, measured
from mjp.report.runs import Run, from_runs

TITLE = "Federated training"
KINDS: tuple[str, ...] = ("federate",)


def gather(runs: Sequence[Run]) -> Any:
    trainings = from_runs(runs, "federate", _training)
    return {"runs": trainings} if trainings else None


def _training(run: Run) -> dict[str, Any]:
    settings = run.settings
    scenarios = run.body["scenarios"]
    return {
        "engine": run.body.get("engine") or "one process",
        "model": next(iter(run.models)),
        "rounds": settings.get("rounds", ""),
        "pictures": settings.get("accuracy", ""),
        "rows": [{"name": name, "cells": _cells(scenario)} for name, scenario in scenarios.items()],
        "faults": [fault for name, scenario in scenarios.items() for fault in _faults(name, scenario)],
        "figure": run.picture("rounds.png"),
        "leaks": run.picture("leaks.png") if (run.folder / "leaks.png").is_file() else None,
        "detail": {name: _by_round(scenario) for name, scenario in scenarios.items()},
    }


def _cells(scenario: dict[str, Any]) -> list[Cell]:
    accuracy = [value for _, value in scenario["accuracy"]]
    return [
        Cell(f"{100 * accuracy[0]:.1f} → {100 * accuracy[-1]:.1f}") if accuracy else NOTHING,
        Cell(f"{scenario['exposed']} of {scenario['audited']}"),
        Cell(str(scenario["not_covered"])),
        Cell(str(scenario["updates"] - scenario["audited"])),
        _number(scenario["best_match"], 3),
        _number(scenario["guess"], 1),
        _number(scenario["psnr"], 1),
        _until_exact(scenario),
        _number(scenario["audit_seconds"], 2),
    ]


def _until_exact(scenario: dict[str, Any]) -> Cell:
    by_rounds = scenario.get("psnr_by_rounds")
    if not by_rounds:
        return NOTHING
    exact = scenario["rounds_until_exact"]
    return Cell(str(exact) if exact else f"over {len(by_rounds)}", f"{by_rounds[-1]:.1f} dB after {len(by_rounds)}")


def _number(value: float | None, digits: int) -> Cell:
    return NOTHING if value is None else measured(value, digits=digits)


def _faults(name: str, scenario: dict[str, Any]) -> list[str]:
    entries = [entry for entry in scenario["entries"] if entry["fault"]]
    return [f"{name}, round {entry['round']}, client {entry['client']}: {entry['fault']}" for entry in entries]


def _by_round(scenario: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for every client and round."""
    return [
        {
            "round": entry["round"],
            "client": entry["client"],
            "status": entry["fault"] or entry["status"],
            "attack": entry["attack"] or "–",
            "cells": [_number(entry["match"], 3), _number(entry["psnr"], 1)],
        }
        for entry in scenario["entries"]
    ]
