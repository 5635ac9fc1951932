"""The leak log: what `mjp attack-update` can read, never more than its bound."""

from pathlib import Path
from typing import Any

import pytest

from clients import prior
from federated.updates import LR, after, before, model
from mjp.common.errors import InputError
from mjp.federated.leak_log import LeakLog, file_name
from mjp.method.model import MJP
from mjp.privacy import audit_update
from mjp.privacy.examine.several import open_sources
from mjp.privacy.examine.sources import find_sources

INFO = {"kind": "fedavg", "lr": LR, "size": (32, 32)}


def test_an_attack_runs_on_what_was_kept(tmp_path: Path) -> None:
    log = LeakLog(tmp_path / "log")
    log.keep_weights(3, before())
    path = log.keep_update(3, "site-1", after(), INFO)
    assert path is not None
    findings = audit_update(path.parent / "weights.safetensors", path, None, model(), attacks=["direct"])
    assert findings[0].verdict is not None
    assert findings[0].verdict.outcome == "explains"
    assert log.updates_of("site-1") == [path]
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0


def test_the_oldest_rounds_go_first(tmp_path: Path) -> None:
    update = after()
    size = sum(tensor.numel() * tensor.element_size() for tensor in update.values())
    log = LeakLog(tmp_path, max_megabytes=max(1.0, 2.5 * size / 1e6))
    kept = log.max_bytes // (size + 20_000)
    for number in range(1, kept + 4):
        log.keep_update(number, "a", update, INFO)
    assert [path.name for path in log.rounds()][-1] == f"round-{kept + 3:04}"
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= log.max_bytes
    assert len(log.rounds()) < kept + 3


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", "ä" * 300, "."])
def test_names_from_outside_stay_in_the_folder(name: str, tmp_path: Path) -> None:
    path = LeakLog(tmp_path).keep_update(1, name, after(), INFO)
    assert path is not None
    assert path.resolve().parent == (tmp_path / "round-0001").resolve()
    assert len(file_name(name)) < 100


def test_clients_whose_names_look_alike_in_file_names_have_different_files() -> None:
    names = ["a b", "a_b", "a/b", "a.b", "ä" * 300, "ä" * 301, "7", ""]
    assert len({file_name(name) for name in names}) == len(names)
    assert file_name("site-1") == "client-site-1"


def test_what_is_not_known_can_be_stated_later(tmp_path: Path) -> None:
    log = LeakLog(tmp_path)
    log.keep_weights(1, before())
    path = log.keep_update(1, "a", after(), {"kind": "fedavg", "colour": "blue"})
    assert path is not None
    with pytest.raises(InputError, match="needs the learning rate"):
        audit_update(path.with_name("weights.safetensors"), path, None, model(), attacks=["direct"])
    findings = audit_update(path.with_name("weights.safetensors"), path, INFO, model(), attacks=["direct"])
    assert findings[0].verdict is not None
    assert findings[0].verdict.outcome == "explains"


def test_one_round_cannot_break_the_bound_either(tmp_path: Path) -> None:
    update = after()
    size = sum(tensor.numel() * tensor.element_size() for tensor in update.values())
    log = LeakLog(tmp_path, max_megabytes=max(1.0, 2.5 * size / 1e6))
    log.keep_weights(1, before())
    fits = [log.keep_update(1, f"site-{k}", update, INFO) is not None for k in range(log.max_bytes // size + 2)]
    assert fits[0]
    assert not fits[-1]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= log.max_bytes


def test_updates_of_an_earlier_run_do_not_stay_beside_the_weights_of_another(tmp_path: Path) -> None:
    log = LeakLog(tmp_path)
    for number in (1, 2):
        log.keep_weights(number, before())
        log.keep_update(number, "a", after(), INFO)
    log.keep_weights(2, before())  # the same run goes on
    assert len(log.updates_of("a")) == 2
    log.keep_weights(1, after())
    assert log.updates_of("a") == []


def test_what_a_client_states_may_be_anything(tmp_path: Path) -> None:
    log = LeakLog(tmp_path)
    path = log.keep_update(1, "a", after(), {**INFO, "batch": b"one", "defence": None})
    assert path is not None
    assert "batch" not in path.with_suffix(".json").read_text()


@pytest.mark.parametrize(
    "nonsense",
    [{"lr": "fast"}, {"lr": float("nan")}, {"lr": 0}, {"steps": 10**9}, {"defence": "magic:1"}, {"size": [1, 2, 3]}],
    ids=str,
)
def test_what_one_client_states_does_not_keep_an_auditor_from_the_others(
    nonsense: dict[str, Any], tmp_path: Path
) -> None:
    log = LeakLog(tmp_path / "log")
    log.keep_weights(1, before())
    log.keep_update(1, "a", after(), {**INFO, **nonsense})
    log.keep_update(1, "b", after(start=4), INFO)
    log.keep_update(1, "c", after(start=4), INFO)  # the same once more
    half_written = tmp_path / "log" / "round-0001" / ".client-d.safetensors.abcdefgh.tmp"
    half_written.mkdir()
    (half_written / "client-d.safetensors").write_bytes(b"half a file")
    MJP(model().unwrap(), model().config).save_pretrained(tmp_path / "model")
    sources = find_sources([tmp_path / "log"])
    targets, left_out = open_sources(sources, str(tmp_path / "model"), {}, prior=prior())
    assert "client-b.safetensors" in targets
    assert "holds the same update" in left_out["client-c.safetensors"]
    assert {*targets, *left_out} == {f"client-{name}.safetensors" for name in "abc"}
    assert ("client-a.safetensors" in left_out) == ("lr" in nonsense)


def test_an_update_that_was_named_is_not_left_out(tmp_path: Path) -> None:
    log = LeakLog(tmp_path / "log")
    log.keep_weights(1, before())
    paths = [log.keep_update(1, name, after(start=start), {}) for name, start in (("a", 3), ("b", 4))]
    with pytest.raises(InputError, match=r"client-a.safetensors: .*"):
        open_sources(find_sources([path for path in paths if path]), "mini-cifar10-mjp", {}, prior=prior())
