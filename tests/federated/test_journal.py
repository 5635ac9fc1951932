"""The journal: a killed run continues after its last finished round, another run does not."""

from pathlib import Path

import pytest
import torch

from mjp.common.errors import InputError
from mjp.federated.auditor import LeakReport
from mjp.federated.journal import Entry, Journal, entry_of_figures
from mjp.federated.summary import finish, round_line, scenario_of
from mjp.privacy.examine.conclusion import NOT_RECOVERED


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run", {"model": "m", "clients": 2})
    journal.note_accuracy(0, 0.1)
    journal.close_round(1, {"w": torch.ones(2)}, [Entry(round=1, client="a", status="exposed", match=1.0)])
    journal.close_round(2, {"w": torch.full((2,), 2.0)}, [Entry(round=2, client="a", fault="no answer")])
    again = Journal(tmp_path / "run", {"model": "m", "clients": 2})
    assert (again.rounds, again.accuracy, again.entries) == (2, {0: 0.1}, journal.entries)
    weights = again.weights()
    assert weights is not None
    assert weights["w"].tolist() == [2, 2]
    assert len(list((tmp_path / "run").glob("weights-*"))) == 1


def test_the_page_of_an_engines_run_prints_no_command_that_does_not_exist(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "server", {"engine": "Flower", "model": "m"})
    journal.note_accuracy(0, 0.1)
    journal.close_round(1, {"w": torch.ones(2)}, [Entry(round=1, client="a", status="exposed", match=1.0)])
    results = finish(tmp_path, {"none": journal}, {**journal.settings, "rounds": 1})
    page = (tmp_path / "report.html").read_text()
    assert "# started by Flower, with\nmodel = m\nrounds = 1" in page
    assert "mjp federate" not in page
    assert "engine" not in results.settings


def test_another_run_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path, {"clients": 2}).note_accuracy(0, 0.1)
    with pytest.raises(InputError, match=r"other settings \(clients\)"):
        Journal(tmp_path, {"clients": 3})


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.json").write_text('{"settings": {}, "rounds": "two"}')
    with pytest.raises(InputError, match=r"journal.json is damaged"):
        Journal(tmp_path, {})


@pytest.mark.parametrize("status", ["exposed", NOT_RECOVERED, "not covered", "not audited"])
def test_figures_tell_the_status(status: str) -> None:
    report = LeakReport(status=status, match=0.5, matches={"direct": 0.2, "span": 0.5})  # type: ignore[arg-type]
    entry = entry_of_figures(4, "b", {"train_loss": 1.0, **report.figures()})
    assert (entry.status, entry.match, entry.round) == (status, 0.5, 4)
    assert entry.attack == ("span" if status in ("exposed", NOT_RECOVERED) else "")


def test_without_figures_the_status_is_unknown() -> None:
    assert entry_of_figures(1, "a", {"train_loss": 1.0}).status == "unknown"


def test_a_round_in_one_line() -> None:
    entries = [
        Entry(round=1, client="a", status="exposed", attack="direct", match=1.0),
        Entry(round=1, client="b", fault="no answer"),
    ]
    line = round_line(1, entries)
    assert "1 of 1 audited updates exposed" in line
    assert "client b: no answer" in line


def test_a_round_that_failed_once_counts_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path, {})
    journal.add(Entry(round=1, client="a", fault="no answer"))
    journal.close_round(1, {"w": torch.ones(1)}, [Entry(round=1, client="a", status="exposed")])
    assert [entry.status for entry in Journal(tmp_path, {}).entries] == ["exposed"]


def test_figures_that_are_not_finite_do_not_stop_the_server(tmp_path: Path) -> None:
    nan = float("nan")
    entry = entry_of_figures(1, "a", {"leak_exposed": 1.0, "leak_match": nan, "leak_match_direct": nan})
    journal = Journal(tmp_path, {})
    journal.add(entry)
    assert Journal(tmp_path, {}).entries == [entry]
    assert "best match 0.000" in round_line(1, [entry]) or not entry.attack


def test_an_update_that_could_not_be_audited_does_not_count_as_audited(tmp_path: Path) -> None:
    """Else "0 of 2 exposed" would be said of updates that no attack saw."""
    journal = Journal(tmp_path, {})
    journal.add(Entry(round=1, client="a", status="not audited"), Entry(round=1, client="b", status="unknown"))
    scenario = scenario_of(journal)
    assert (scenario["updates"], scenario["audited"], scenario["not_audited"]) == (2, 0, 2)
    assert "0 of 0 audited updates exposed; 2 not audited" in round_line(1, journal.entries)


def test_an_accuracy_that_is_not_finite_does_not_damage_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, {})
    journal.note_accuracy(0, 0.5)
    journal.note_accuracy(1, float("nan"))
    assert Journal(tmp_path, {}).accuracy == {0: 0.5}
