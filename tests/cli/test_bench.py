"""`mjp bench`: the keys that others read. No test looks at a timing."""

import json

import pytest

from mjp.bench import attacks
from mjp.cli.main import main


def test_json_has_the_promised_keys_and_nothing_else_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--json", "--batch", "1", "--repeats", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"shuffle_vs_copy", "plans_1024_ms", "step_overhead_percent", "rope_step_overhead_percent"} <= result.keys()
    assert result["shuffle_vs_copy"] > 0 < result["plans_1024_ms"]


def test_training_json_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "train", "--json", "--repeats", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"engine_overhead_percent", "mjp_train_overhead_percent"} <= result.keys()


def test_jobs_json_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "jobs", "--json", "--repeats", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"jobs_vs_threads_ratio", "jobs_steps_per_second", "threads_steps_per_second"} <= result.keys()


def test_people_get_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "train", "--repeats", "1"]) == 0
    assert "over plain training" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--batch", "--repeats"])
def test_zero_repeats_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", option, "0"]) == 2
    assert option in capsys.readouterr().err


def test_sweep_prints_its_cost_in_plain_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "sweep", "--json", "--repeats", "1"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["sweep_ratios"] == 5
    assert figures["sweep_cost_ratio"] > 0


def test_attacks_print_their_seconds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On small models: those that people measure take a minute."""
    for name in ("LARGE", "WIDE"):
        monkeypatch.setattr(attacks, name, "mini-cifar10-plain")
    monkeypatch.setattr(attacks, "RATIOS", (0.06, 0.09))
    monkeypatch.setattr(attacks, "ATTACKS", ("subspace", "rounds"))
    assert main(["bench", "attacks", "--json", "--repeats", "1"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert {"april_gelsd_ratio", "direct_seconds", "direct_processor"} <= figures.keys()
    assert figures["direct_vs_gelsd"] > 0
    assert figures["direct_psnr"] > 60
    assert set(figures["attack_seconds"]) == set(attacks.ATTACKS)
    assert [int(number) for number in figures["lattice_seconds"]] == [2, 4]
    assert all(value > 0 for value in (*figures["attack_seconds"].values(), *figures["lattice_seconds"].values()))
    assert any("LAPACK's gelsd" in line for line in attacks.lines(figures))


def test_the_page_prints_how_quickly_it_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "app", "--json", "--repeats", "1"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert min(figures[name] for name in ("slider_ms", "slider_busy_ms", "first_attack_seconds")) > 0
