"""What a run showed: lines for people, results.json for the report, and a chart."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from mjp.common.files import write_atomically
from mjp.common.results import Results, write_results
from mjp.federated.chart import draw_rounds
from mjp.federated.journal import Entry, Journal
from mjp.federated.truth import PICTURE, TOGETHER
from mjp.pictures.sheet import contact_sheet
from mjp.privacy.examine.conclusion import EXPOSED, NOT_COVERED, NOT_RECOVERED
from mjp.report.page import write_page

KIND = "federate"
MAX_COLUMNS = 4  # rounds that are drawn


def audited_among(entries: Sequence[Entry]) -> list[Entry]:
    """Those on which an attack was tried, or would have been if one covered them: with one of the three verdicts."""
    return [entry for entry in entries if entry.status in (EXPOSED, NOT_RECOVERED, NOT_COVERED)]


def round_line(number: int, entries: Sequence[Entry]) -> str:
    """One round in one line."""
    audited = audited_among(entries)
    exposed = [entry for entry in audited if entry.status == EXPOSED]
    best = max(audited, key=lambda entry: entry.match, default=None)
    text = f"round {number}: {len(exposed)} of {len(audited)} audited updates exposed"
    if best is not None and best.attack:
        text += f", best match {best.match:.3f} ({best.attack}, client {best.client})"
    if len(entries) > len(audited):
        text += f"; {len(entries) - len(audited)} not audited"
    for entry in entries:
        if entry.fault:
            text += f"; client {entry.client}: {entry.fault}"
    return text


def lost_rounds(entries: Sequence[Entry]) -> list[int]:
    """The rounds in which not one update could be averaged."""
    usable = {entry.round for entry in entries if not entry.fault}
    return sorted({entry.round for entry in entries} - usable)


def scenario_line(name: str, journal: Journal, more: Mapping[str, Any]) -> str:
    """A whole run in one line."""
    scenario = scenario_of(journal)
    accuracy = [value for _, value in scenario["accuracy"]]
    parts = [f"{scenario['exposed']} of {scenario['audited']} updates exposed"]
    if scenario["psnr"] is not None:
        parts.append(f"reconstructions {scenario['psnr']:.1f} dB, guess {scenario['guess']:.1f} dB")
    if len(by_rounds := more.get("psnr_by_rounds", [])) > 1:
        exact = more["rounds_until_exact"]
        rest = f"{by_rounds[-1]:.1f} dB after {len(by_rounds)} rounds"
        parts.append(rest if exact is None else f"exact after round {exact}")
    if accuracy:
        parts.append(f"accuracy {100 * accuracy[0]:.1f} → {100 * accuracy[-1]:.1f} %")
    if scenario["not_audited"]:
        parts.append(f"{scenario['not_audited']} not audited")
    if scenario["faults"]:
        parts.append(f"{scenario['faults']} faults")
    return f"{name}: {', '.join(parts)}"


def scenario_of(journal: Journal, **more: Any) -> dict[str, Any]:
    """One training run in results.json: `accuracy` by round, `entries`, and counts over all of them."""
    entries = journal.entries
    audited = audited_among(entries)
    counts = Counter(entry.status for entry in entries)
    return {
        "accuracy": [[number, journal.accuracy[number]] for number in sorted(journal.accuracy)],
        "updates": len(entries),
        "audited": len(audited),
        "exposed": counts[EXPOSED],
        "not_recovered": counts[NOT_RECOVERED],
        "not_covered": counts[NOT_COVERED],
        "not_audited": len(entries) - len(audited),
        "faults": sum(bool(entry.fault) for entry in entries),
        "best_match": max((entry.match for entry in audited), default=None),
        "psnr": _mean([entry.psnr for entry in audited]),
        "guess": _mean([entry.guess for entry in audited]),
        "audit_seconds": _mean([entry.seconds for entry in audited]),
        "entries": [asdict(entry) for entry in entries],
        **more,
    }


def finish(
    folder: Path,
    journals: Mapping[str, Journal],
    settings: Mapping[str, Any],
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> Results:
    """Write results.json and rounds.png of finished runs, by name; `more` is added to single runs.

    The engine is among the settings of a journal, but no option of a command: it goes into the body.
    """
    scenarios = {name: scenario_of(journal, **(more or {}).get(name, {})) for name, journal in journals.items()}
    folder.mkdir(parents=True, exist_ok=True)
    draw_rounds(scenarios, folder / "rounds.png")
    model = str(settings.get("model", "model"))
    options = {name: value for name, value in settings.items() if name != "engine"}
    body: dict[str, Any] = {"models": {model: {}}, "engine": settings.get("engine"), "scenarios": scenarios}
    results = write_results(folder, KIND, options, body)
    write_page(folder / "report.html", [folder], title="Federated training")
    return results


def draw_leaks(leaks: Mapping[str, Mapping[str, Tensor]], path: Path) -> None:
    """One row for each run: the first client's picture, what rounds gave away of it, each and all together."""
    names = {name for tiles in leaks.values() for name in tiles}
    rounds = sorted(names - {PICTURE, TOGETHER}, key=_number)
    count = min(MAX_COLUMNS, len(rounds))
    columns = [rounds[k * (len(rounds) - 1) // max(1, count - 1)] for k in range(count)]
    columns += [TOGETHER] if TOGETHER in names else []
    rows: dict[str, list[Tensor | str]] = {
        name: [tiles[PICTURE], *(tiles.get(column, "no attack ran") for column in columns)]
        for name, tiles in leaks.items()
        if PICTURE in tiles
    }
    if rows:
        sheet = contact_sheet(rows, [PICTURE, *columns], title="What the server can see of client 0", least=128)
        write_atomically(path, sheet.save)


def _number(name: str) -> int:
    return int(name.split()[-1])


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
