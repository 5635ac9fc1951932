"""`mjp federate`: what it shows, that it continues to the same bits, and that a fault stays with its client."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from clients import tiny
from mjp.cli.federate import Options, run
from mjp.cli.main import main
from mjp.common.errors import InputError
from mjp.common.results import read_results
from mjp.federated.client import LocalClient
from mjp.federated.journal import Journal
from mjp.federated.returning import rounds_until_exact
from mjp.federated.simulation import average, open_journal
from mjp.federated.summary import draw_leaks
from mjp.method.config import variant
from mjp.method.model import MJP
from mjp.privacy import audit_update
from mjp.privacy.update import load_update
from report.folders import Page

DEFENCES = ("none", "mjp:0.5", "mjp-sticky:0.5", "batch:2+fedavg:2")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    MJP(tiny(dtype=torch.float32).unwrap(), variant("J", ratio=0.5)).save_pretrained(folder)
    return str(folder)


def options(model: str, out: Path, **changes: Any) -> Options:
    base = Options(model=model, clients=2, rounds=2, attacks=("direct", "subspace"), accuracy=20, out=out, lr=0.01)
    return replace(base, **{"defences": ("none",), **changes})


@pytest.fixture(scope="module")
def done(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("federate") / "out"
    run(options(model, out, defences=DEFENCES, leak_log=True))
    return out


def test_defences_that_differ_by_a_point_have_different_folders(model: str, tmp_path: Path) -> None:
    texts = ("dp:.5", "dp:5", "mjp:0.5", "mjp:.05")
    settings = options(model, tmp_path, defences=texts)
    assert len({open_journal(text, settings, tmp_path).folder for text in texts}) == len(texts)
    with pytest.raises(InputError, match="twice"):
        options(model, tmp_path, defences=("dp:.5", "dp:0.5"))


def test_a_plain_picture_is_copied_and_jigsaws_leave_something_open(done: Path) -> None:
    scenarios = read_results(done).body["scenarios"]
    assert list(scenarios) == list(DEFENCES)
    assert scenarios["none"]["exposed"] == scenarios["none"]["updates"] == 4
    assert scenarios["none"]["psnr"] > 40
    assert scenarios["mjp:0.5"]["psnr"] < 40
    for scenario in scenarios.values():
        assert [number for number, _ in scenario["accuracy"]] == [0, 1, 2]
        assert {(entry["round"], entry["client"]) for entry in scenario["entries"]} == {
            (number, client) for number in (1, 2) for client in ("0", "1")
        }


def test_rounds_taken_together_tell_more_unless_the_jigsaw_stays(done: Path) -> None:
    scenarios = read_results(done).body["scenarios"]
    assert scenarios["none"]["rounds_until_exact"] == 1
    fresh, sticky = (scenarios[name]["psnr_by_rounds"] for name in ("mjp:0.5", "mjp-sticky:0.5"))
    assert fresh[1] > fresh[0] + 1
    assert fresh[1] - fresh[0] > sticky[1] - sticky[0]
    assert "psnr_by_rounds" not in scenarios["batch:2+fedavg:2"]  # several pictures: the attack does not apply


def test_the_page_shows_every_defence_and_never_says_safe(done: Path) -> None:
    page = Page((done / "report.html").read_text())
    assert "federated" in [section["id"] for section in page.all("section")]
    assert "4 of 4" in page.text
    assert all(defence in page.text for defence in DEFENCES)
    assert "not that the update is safe" in page.text
    assert len(page.all("img")) >= 2
    assert "on 20 validation pictures" in page.text


def test_the_servers_log_holds_what_attacks_need(done: Path) -> None:
    folder = done / "leak-log" / "none" / "round-0002"
    model = str(options(read_results(done).settings["model"], done).model)
    findings = audit_update(folder / "weights.safetensors", folder / "client-0.safetensors", None, model)
    assert findings.conclusion.verdict == "exposed"


def test_what_the_log_states_is_all_that_is_public(done: Path) -> None:
    """λ among it: without, the part of the localization loss would pass for noise."""
    info = load_update(done / "leak-log" / "mjp_0_5" / "round-0001" / "client-0.safetensors").info
    assert (info.kind, info.batch, info.steps, info.lr, info.defence) == ("fedavg", 1, 1, 0.01, "mjp:0.5")
    assert info.localize_weight == variant("J").localize_weight > 0


def test_a_killed_run_continues_to_the_same_bits(model: str, done: Path, tmp_path: Path) -> None:
    run(options(model, tmp_path, defences=("mjp:0.5",), rounds=1, leak_log=True))
    run(options(model, tmp_path, defences=("mjp:0.5",), rounds=2, leak_log=True))
    scenarios = [read_results(folder).body["scenarios"]["mjp:0.5"] for folder in (done, tmp_path)]
    for scenario in scenarios:
        scenario.pop("audit_seconds")
        for entry in scenario["entries"]:
            entry.pop("seconds")
    assert scenarios[0] == scenarios[1]
    place = Path("scenarios", "mjp_0_5", "weights-0002.safetensors")
    assert (done / place).read_bytes() == (tmp_path / place).read_bytes()


def test_one_client_fails_and_the_others_go_on(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = LocalClient.train

    def fail_second(self: LocalClient, weights: Any, number: int) -> Any:
        sent = train(self, weights, number)
        if len(self.images) > 1 and number == 1:
            raise MemoryError("no room")
        nan = {name: tensor * float("nan") for name, tensor in sent.weights.items()}
        return sent._replace(weights=nan) if len(self.images) > 1 else sent

    monkeypatch.setattr(LocalClient, "train", fail_second)
    run(options(model, tmp_path))
    entries = read_results(tmp_path).body["scenarios"]["none"]["entries"]
    assert [entry["status"] for entry in entries if entry["client"] == "0"] == ["exposed", "exposed"]
    faults = [entry["fault"] for entry in entries if entry["client"] == "1"]
    assert "MemoryError: no room" in faults[0]
    assert "holds NaN" in faults[1]
    assert "MemoryError" in (tmp_path / "report.html").read_text()


def test_a_run_killed_before_its_accuracy_was_measured_measures_it(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = Journal.note_accuracy

    def killed(self: Journal, number: int, accuracy: float) -> None:
        if number == 1:
            raise KeyboardInterrupt
        note(self, number, accuracy)

    monkeypatch.setattr(Journal, "note_accuracy", killed)
    with pytest.raises(KeyboardInterrupt):
        run(options(model, tmp_path))
    monkeypatch.setattr(Journal, "note_accuracy", note)
    run(options(model, tmp_path))
    accuracy = read_results(tmp_path).body["scenarios"]["none"]["accuracy"]
    assert [number for number, _ in accuracy] == [0, 1, 2]


def test_the_picture_after_all_rounds_is_the_best_of_them() -> None:
    """The attack on several rounds is made for jigsaws: without one, a single update tells more."""
    picture, guess = torch.full((3, 32, 32), 0.5), torch.zeros(3, 32, 32)
    prior_only = SimpleNamespace(prior=SimpleNamespace(mean=guess), patch=(4, 4))
    tiles = {"picture": picture, "round 1": picture + 0.01, "round 2": picture + 0.1}
    figures, last = rounds_until_exact({1: prior_only}, 2, tiles)  # type: ignore[dict-item]
    assert figures["psnr_by_rounds"][0] == figures["psnr_by_rounds"][1] > 30
    assert torch.allclose(last["all rounds"], tiles["round 1"])


@pytest.mark.parametrize("faulty", [(1,), (1, 2, 3)])
def test_the_first_client_fails_and_the_page_is_written_all_the_same(
    faulty: tuple[int, ...], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its picture is then attacked in the rounds in which it took part, and these are counted as what they are."""
    train = LocalClient.train

    def fail_first(self: LocalClient, weights: Any, number: int) -> Any:
        if len(self.images) == 1 and number in faulty:
            raise MemoryError("no room")
        return train(self, weights, number)

    monkeypatch.setattr(LocalClient, "train", fail_first)
    run(options(model, tmp_path, rounds=3))
    scenario = read_results(tmp_path).body["scenarios"]["none"]
    assert (scenario["faults"], scenario["not_audited"], scenario["audited"]) == (
        len(faulty),
        len(faulty),
        6 - len(faulty),
    )
    assert scenario.get("rounds_until_exact") == (2 if faulty == (1,) else None)
    assert len(scenario.get("psnr_by_rounds", [])) == (3 if faulty == (1,) else 0)


def test_rounds_that_no_longer_fit_into_the_log_keep_their_number(model: str, tmp_path: Path) -> None:
    run(options(model, tmp_path, rounds=3, max_megabytes=1, lr=0.001))
    log = tmp_path / "leak-log" / "none"
    assert len(list(log.glob("round-*"))) < 3  # or this test shows nothing
    scenario = read_results(tmp_path).body["scenarios"]["none"]
    assert len(scenario["psnr_by_rounds"]) == 3


def test_fewer_rounds_than_there_are_is_refused(model: str, tmp_path: Path) -> None:
    run(options(model, tmp_path, rounds=2))
    with pytest.raises(InputError, match="holds 2 rounds: state at least as many"):
        run(options(model, tmp_path, rounds=1))
    assert (tmp_path / "results.json").is_file()


def test_it_says_how_to_do_the_same_with_flower(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(options(model, tmp_path, rounds=1, seed=5))
    text = capsys.readouterr().out
    assert "--num-supernodes 2" in text
    for setting in (
        f'leak-audit.model="{model}"',
        'leak-audit.defence="none"',
        "num-server-rounds=1",
        "lr=0.01",
        "seed=5",
    ):
        assert setting in text


def test_a_run_that_fails_says_so_and_leaves_no_results(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run(options(model, tmp_path, rounds=1))

    def fail(self: LocalClient, weights: Any, number: int) -> Any:
        raise RuntimeError("gone")

    monkeypatch.setattr(LocalClient, "train", fail)
    arguments = (
        f"federate --model {model} --defences none --clients 2 --rounds 3 --attacks direct subspace --accuracy 20"
    )
    assert main([*arguments.split(), "--lr", "0.01", "--out", str(tmp_path)]) == 2
    assert "round 2: no client sent an update that can be averaged" in capfd.readouterr().err
    assert not (tmp_path / "results.json").exists()


def test_a_folder_of_another_run_is_refused(model: str, tmp_path: Path) -> None:
    run(options(model, tmp_path, rounds=1))
    with pytest.raises(InputError, match=r"other settings \(lr\)"):
        run(options(model, tmp_path, rounds=1, lr=0.02))
    assert (tmp_path / "results.json").is_file()


@pytest.mark.parametrize("rounds", [0, 1, 4, 5, 6, 23])
def test_leaks_are_drawn_for_any_number_of_rounds(rounds: int, tmp_path: Path) -> None:
    names = ["picture", *(f"round {number}" for number in range(1, rounds + 1))]
    tiles = {name: torch.zeros(3, 8, 8) for name in names}
    draw_leaks({"none": tiles, "dp:1": {"picture": torch.zeros(3, 8, 8)}}, tmp_path / "leaks.png")
    with Image.open(tmp_path / "leaks.png") as sheet:
        assert sheet.width >= 128 * min(len(names), 5)


def test_what_all_rounds_tell_together_is_drawn_beside_them(tmp_path: Path) -> None:
    tiles = {name: torch.zeros(3, 8, 8) for name in ("picture", "round 1", "round 2")}
    widths = []
    for more in ({}, {"all rounds": torch.ones(3, 8, 8)}):
        draw_leaks({"none": {**tiles, **more}, "dp:1": tiles}, tmp_path / "leaks.png")
        with Image.open(tmp_path / "leaks.png") as sheet:
            widths.append(sheet.width)
    assert widths[1] >= widths[0] + 128


def test_the_average_weighs_clients_by_their_pictures() -> None:
    updates = [{"w": torch.tensor([1.0, 0.0])}, {"w": torch.tensor([0.0, 4.0])}]
    assert average(updates, [3, 1])["w"].tolist() == [0.75, 1.0]
