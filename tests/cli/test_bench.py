"""`mjp bench`: the keys that others read. No test looks at a timing."""

import json

import pytest

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
