"""Accuracy and leakage over the rounds as a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mjp.common.charts import COLOURS, pyplot, save_chart, tidy
from mjp.federated.auditor import NOT_AUDITED

STYLES = ("-", "--", ":")


def draw_rounds(scenarios: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Left the accuracy of the global model, right the best match of an attack in every round."""
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for number, (name, scenario) in enumerate(scenarios.items()):
        look = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": STYLES[number // len(COLOURS) % len(STYLES)],
            "marker": ".",
            "label": name,
        }
        if scenario["accuracy"]:
            rounds, values = zip(*scenario["accuracy"], strict=True)
            left.plot(rounds, [100 * value for value in values], **look)
        best = _best_matches(scenario)
        right.plot(list(best), list(best.values()), **look)
    left.set(title="accuracy of the global model, %", xlabel="round")
    if not any(scenario["accuracy"] for scenario in scenarios.values()):
        left.text(0.5, 0.5, "not measured", ha="center", transform=left.transAxes)
    middle, half = sum(left.get_ylim()) / 2, max(5.0, (left.get_ylim()[1] - left.get_ylim()[0]) / 2)
    left.set_ylim(middle - half, middle + half)  # one picture more or less must not look like a cliff
    right.set(title="best match of an attack, 1 = the picture explains the update", xlabel="round", ylim=(-0.03, 1.05))
    tidy(left, right)
    for axis in (left, right):
        axis.xaxis.get_major_locator().set_params(integer=True)
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    save_chart(figure, path)


def _best_matches(scenario: Mapping[str, Any]) -> dict[int, float]:
    """{round: best match over the clients}, of rounds with an audit."""
    best: dict[int, float] = {}
    for entry in scenario["entries"]:
        if entry["status"] not in ("unknown", NOT_AUDITED):
            best[entry["round"]] = max(best.get(entry["round"], 0.0), entry["match"])
    return dict(sorted(best.items()))
