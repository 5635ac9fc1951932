"""The client mod and the strategy, driven in one process by a Grid of our own: no Ray, no network."""

import math
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from federated.updates import LR, after, before, make_auditor, model
from mjp.common.errors import InputError
from mjp.common.results import read_results
from mjp.common.runs.lock import hold_folder
from mjp.federated.auditor import LeakAuditor
from mjp.federated.journal import Journal
from mjp.federated.settings import find_auditor
from mjp.privacy import audit_update

flwr = pytest.importorskip("flwr", reason="Flower is not installed: pip install 'mjp[flower]'")

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from mjp.federated.flower import AuditedStrategy, LeakAudit, arrays_of, tensors_of  # noqa: E402

Answer = Callable[[Any, Any], Any]
INFO = {"size": (32, 32), "lr": LR}


@pytest.fixture(autouse=True)
def _tiny_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings name a model by text; these tests have theirs in memory."""

    def build(settings: Any) -> LeakAuditor:
        limit = None if settings.limit < 0 else settings.limit
        return make_auditor(attacks=settings.attacks.split(","), limit=limit, strict=settings.strict)

    monkeypatch.setattr("mjp.federated.flower.mod.find_auditor", build)
    for name in ("task_id", "run_id", "node_id"):  # of the process in which messages are made
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


class OneProcess:
    """Clients by node id; whatever a client raises is an error reply, and None is a client that never answers."""

    def __init__(self, clients: dict[int, Answer], config: dict[str, Any] | None = None) -> None:
        self.clients = clients
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config=config or {})
            for node in clients
        }

    def get_node_ids(self) -> list[int]:
        return list(self.clients)

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            try:
                reply = self.clients[node](message, self.contexts[node])
            except Exception as error:
                reply = Message(Error(code=2, reason=str(error)), reply_to=message)
            if reply is not None:
                replies.append(reply)
        return replies


def answer(message: Any, weights: dict[str, Any], **metrics: Any) -> Any:
    content = {"arrays": arrays_of(weights), "metrics": MetricRecord({"num-examples": 1, **metrics})}
    return Message(RecordDict(content), reply_to=message)


def audited(train: Answer, **settings: Any) -> Answer:
    app = ClientApp()
    app.train(mods=[LeakAudit(attacks="direct,span", **settings)])(train)
    return app


def one_picture(message: Any, context: Any) -> Any:
    return answer(message, after(), train_loss=1.0)


def start(
    folder: Path,
    clients: dict[int, Answer],
    *,
    rounds: int = 1,
    config: dict[str, Any] | None = None,
    strategy: Any = None,
    **options: Any,
) -> Any:
    random.seed(0)
    strategy = strategy or FedAvg(fraction_evaluate=0.0)
    strategy = AuditedStrategy(strategy, folder, settings={"model": "tiny"}, **options)
    grid = OneProcess(clients, config)
    train_config = ConfigRecord({"lr": LR})
    accuracy = lambda number, arrays: MetricRecord({"accuracy": 0.1 * number})  # noqa: E731
    return strategy.start(
        grid, arrays_of(before()), num_rounds=rounds, train_config=train_config, evaluate_fn=accuracy, timeout=1
    )


def entries(folder: Path) -> dict[str, Any]:
    """The last entry of every client."""
    return {entry.client: entry for entry in Journal.open(folder / "server").entries}


def test_every_update_is_audited_and_the_picture_is_rebuilt(tmp_path: Path) -> None:
    result = start(tmp_path, {1: audited(one_picture), 2: audited(one_picture)}, leak_log=tmp_path / "log", info=INFO)
    metrics = result.train_metrics_clientapp[1]
    assert metrics["leak_exposed"] == 1
    assert metrics["leak_match_direct"] > 0.9999
    assert metrics["train_loss"] == 1
    assert {entry.status for entry in entries(tmp_path).values()} == {"exposed"}
    scenario = read_results(tmp_path).body["scenarios"]["Flower"]
    assert (scenario["updates"], scenario["exposed"], scenario["accuracy"][-1]) == (2, 2, [1, 0.1])
    (update, *_) = (tmp_path / "log" / "round-0001").glob("client-1.safetensors")
    findings = audit_update(update.with_name("weights.safetensors"), update, None, model(), attacks=["direct"])
    assert findings[0].verdict is not None
    assert findings[0].verdict.outcome == "explains"


def test_the_global_model_is_that_of_the_strategy_alone(tmp_path: Path) -> None:
    """The audit changes nothing about what is averaged."""
    with_audit = start(tmp_path / "a", {1: audited(one_picture), 2: audited(one_picture)})
    plain = FedAvg(fraction_evaluate=0.0).start(
        OneProcess({1: one_picture, 2: one_picture}), arrays_of(before()), num_rounds=1
    )
    for name, tensor in plain.arrays.to_torch_state_dict().items():
        assert torch.equal(tensor, with_audit.arrays.to_torch_state_dict()[name]), name


def test_above_the_limit_the_update_stays_with_the_client(tmp_path: Path) -> None:
    def eight(message: Any, context: Any) -> Any:
        return answer(message, after(8), batch=8)

    clients = {1: audited(one_picture, limit=0.97), 2: audited(eight, limit=0.97, batch=8)}
    start(tmp_path, clients, leak_log=tmp_path / "log", info=INFO)
    assert "withheld by the leak audit: exposed" in entries(tmp_path)["1"].fault
    assert entries(tmp_path)["2"].fault == ""
    assert not (tmp_path / "log" / "round-0001" / "client-1.safetensors").exists()


def test_settings_come_from_the_run_and_details_stay_with_the_client(tmp_path: Path) -> None:
    config = {"leak-audit.limit": 0.5, "leak-audit.details": str(tmp_path / "private")}
    with pytest.raises(RuntimeError, match="0 usable updates"):
        start(tmp_path / "server", {1: audited(one_picture), 2: audited(one_picture)}, config=config)
    assert len((tmp_path / "private" / "audit.jsonl").read_text().splitlines()) == 2
    assert len(list((tmp_path / "private").glob("*.png"))) == 2
    assert not (tmp_path / "server" / "results.json").exists()


def fails(message: Any, context: Any) -> Any:
    raise RuntimeError("the disk is on fire")


def sends_nan(message: Any, context: Any) -> Any:
    return answer(message, {name: tensor * math.nan for name, tensor in after().items()}, train_loss=1.0)


def sends_another_model(message: Any, context: Any) -> Any:
    return answer(message, {"fc.weight": torch.zeros(2, 2)}, train_loss=1.0)


def sends_half(message: Any, context: Any) -> Any:
    return answer(message, dict(list(after().items())[:5]), train_loss=1.0)


def sends_cut_bytes(message: Any, context: Any) -> Any:
    reply = answer(message, after(), train_loss=1.0)
    array = next(iter(reply.content["arrays"].values()))
    array.data = array.data[: len(array.data) // 2]
    return reply


def sends_nothing(message: Any, context: Any) -> Any:
    return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


def sends_complex_numbers(message: Any, context: Any) -> Any:
    return answer(message, {name: tensor.to(torch.complex64) for name, tensor in after().items()}, train_loss=1.0)


def claims_to_be_everybody(message: Any, context: Any) -> Any:
    return answer(message, after(), **{"num-examples": 1e308})


@pytest.mark.parametrize(
    ("client", "fault"),
    [
        (sends_complex_numbers, "holds numbers of type torch.complex64"),
        (claims_to_be_everybody, "its metrics lack a positive number num-examples"),
        (fails, "the disk is on fire"),
        (sends_nan, "holds NaN"),
        (sends_another_model, "is missing"),
        (sends_half, "incomplete"),
        (sends_cut_bytes, "unreadable"),
        (sends_nothing, "unreadable"),
        (lambda message, context: None, "no answer"),
    ],
    ids=["complex", "heavy", "dies", "nan", "another model", "half", "cut", "empty", "late"],
)
@pytest.mark.parametrize("with_mod", [True, False])
def test_a_faulty_client_costs_nobody_else_the_round(
    client: Answer, fault: str, with_mod: bool, tmp_path: Path
) -> None:
    faulty = audited(client) if with_mod and fault not in ("no answer", "the disk is on fire") else client
    result = start(tmp_path, {1: audited(one_picture), 2: faulty})
    assert fault in entries(tmp_path)["2"].fault
    assert entries(tmp_path)["1"].status == "exposed"
    averaged = result.arrays.to_torch_state_dict()
    assert all(torch.equal(averaged[name], tensor) for name, tensor in after().items())


def test_a_client_without_the_mod_is_averaged_and_its_audit_unknown(tmp_path: Path) -> None:
    start(tmp_path, {1: audited(one_picture), 2: one_picture})
    assert (entries(tmp_path)["2"].status, entries(tmp_path)["2"].fault) == ("unknown", "")


def test_a_run_that_was_killed_continues(tmp_path: Path) -> None:
    calls = []

    def counted(message: Any, context: Any) -> Any:
        calls.append(message.content["config"]["server-round"])
        if len(calls) == 5:
            raise KeyboardInterrupt
        return one_picture(message, context)

    with pytest.raises(KeyboardInterrupt):
        start(tmp_path, {1: counted, 2: counted}, rounds=3)
    assert not (tmp_path / "results.json").exists()
    start(tmp_path, {1: counted, 2: counted}, rounds=3)
    assert calls == [1, 1, 2, 2, 3, 3, 3]
    accuracy = read_results(tmp_path).body["scenarios"]["Flower"]["accuracy"]
    assert [number for number, _ in accuracy] == [0, 1, 2, 3]


def test_weights_go_through_records_unchanged() -> None:
    weights = before()
    again = tensors_of(RecordDict({"arrays": arrays_of(weights)}))
    assert all(torch.equal(again[name], tensor) for name, tensor in weights.items())
    assert isinstance(arrays_of(weights), ArrayRecord)


def other_records(message: Any, **metrics: Any) -> Any:
    """Right weights, under names and beside records of the client's own."""
    content = {
        "weights": arrays_of(after()),
        "numbers": MetricRecord({"num-examples": 1, **metrics}),
        "more": MetricRecord({"x": 1.0}),
        "note": ConfigRecord({"lr": "fast", "batch": b"one"}),
    }
    return Message(RecordDict(content), reply_to=message)


@pytest.mark.parametrize("losses", [[1.0], [1.0, 2.0, 3.0], 1.0], ids=["short", "long", "number"])
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_records_that_do_not_fit_together_stop_nobody(losses: Any, order: tuple[int, int], tmp_path: Path) -> None:
    def odd(message: Any, context: Any) -> Any:
        return other_records(message, losses=losses, leak_exposed=1.0, leak_match=math.nan)

    def two_losses(message: Any, context: Any) -> Any:
        return answer(message, after(), losses=[1.0, 2.0])

    answers = dict(zip(order, (audited(two_losses), odd), strict=True))
    start(tmp_path, answers, leak_log=tmp_path / "log")
    assert [entry.fault for entry in entries(tmp_path).values()] == ["", ""]
    assert len(list((tmp_path / "log" / "round-0001").glob("client-*.safetensors"))) == 2
    assert read_results(tmp_path).body["scenarios"]["Flower"]["exposed"] == 2


def test_what_a_client_says_about_its_update_may_be_nonsense(tmp_path: Path) -> None:
    start(tmp_path, {1: audited(lambda message, context: other_records(message)), 2: audited(one_picture)})
    assert [entries(tmp_path)[client].fault for client in "12"] == ["", ""]
    assert entries(tmp_path)["1"].status == "not audited"


def test_evaluations_that_do_not_fit_together_stop_nobody(tmp_path: Path) -> None:
    def client(metrics: dict[str, float]) -> Answer:
        app = ClientApp()
        app.train()(one_picture)
        app.evaluate()(lambda message, context: Message(RecordDict({"m": MetricRecord(metrics)}), reply_to=message))
        return app

    clients = {1: client({"num-examples": 1, "loss": 1.0}), 2: client({"num-examples": 1})}
    start(tmp_path, clients, strategy=FedAvg())
    assert read_results(tmp_path).body["scenarios"]["Flower"]["updates"] == 2


def test_the_strategy_says_what_weighs_a_client(tmp_path: Path) -> None:
    def client(message: Any, context: Any) -> Any:
        content = {"arrays": arrays_of(after()), "metrics": MetricRecord({"pictures": 1})}
        return Message(RecordDict(content), reply_to=message)

    strategy = FedAvg(fraction_evaluate=0.0, weighted_by_key="pictures")
    start(tmp_path, {1: client, 2: client}, strategy=strategy, leak_log=tmp_path / "log")
    assert [entry.fault for entry in entries(tmp_path).values()] == ["", ""]


def test_with_a_limit_wrong_settings_let_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mjp.federated.flower.mod.find_auditor", find_auditor)
    with pytest.raises(RuntimeError, match="0 usable updates"):
        start(tmp_path, dict.fromkeys((1, 2), audited(one_picture, limit=0.97, model="no such model")))
    assert all("withheld" in entry.fault for entry in entries(tmp_path).values())


def test_details_that_cannot_be_written_do_not_cost_the_round(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    config = {"leak-audit.details": str(tmp_path / "file")}
    start(tmp_path / "out", {1: audited(one_picture), 2: audited(one_picture)}, config=config)
    assert {entry.status for entry in entries(tmp_path / "out").values()} == {"exposed"}


def test_a_leak_log_that_cannot_be_written_does_not_cost_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("mjp.federated.leak_log.save_file", full)
    start(tmp_path, {1: audited(one_picture), 2: audited(one_picture)}, leak_log=tmp_path / "log")
    assert [entry.fault for entry in entries(tmp_path).values()] == ["", ""]


def test_a_complete_run_is_not_trained_again_and_returns_its_weights(tmp_path: Path) -> None:
    clients: dict[int, Answer] = {1: one_picture, 2: one_picture}
    first = start(tmp_path, clients)
    again = start(tmp_path, clients)
    assert len(Journal.open(tmp_path / "server").entries) == 2
    tensors = again.arrays.to_torch_state_dict()
    assert tensors
    assert all(torch.equal(tensors[name], tensor) for name, tensor in first.arrays.to_torch_state_dict().items())


def test_a_folder_of_another_model_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "server", {"engine": "Flower", "model": "tiny"}).close_round(1, {"fc": torch.zeros(2)}, [])
    (tmp_path / "results.json").write_text("of that run")
    with pytest.raises(InputError, match="a run of another model"):
        start(tmp_path, {1: one_picture, 2: one_picture}, rounds=2)
    assert (tmp_path / "results.json").is_file()


def test_two_servers_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with hold_folder(tmp_path) as free:
        assert free
        with pytest.raises(InputError, match="another server works in"):
            start(tmp_path, {1: one_picture, 2: one_picture})


def test_a_round_that_failed_is_repeated_and_counts_once(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="0 usable updates"):
        start(tmp_path, {1: fails, 2: fails})
    start(tmp_path, {1: one_picture, 2: one_picture})
    scenario = read_results(tmp_path).body["scenarios"]["Flower"]
    assert (scenario["updates"], scenario["faults"]) == (2, 0)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_half_precision_of_one_client_does_not_become_that_of_all(order: tuple[int, int], tmp_path: Path) -> None:
    """FedAvg averages in the number type of one reply: the small steps of the others would be gone."""

    def half(message: Any, context: Any) -> Any:
        return answer(message, {name: tensor.half() for name, tensor in after().items()})

    clients = dict(zip(order, (audited(half), audited(one_picture)), strict=True))
    averaged = start(tmp_path, dict(sorted(clients.items()))).arrays.to_torch_state_dict()
    halves = {name: (tensor + tensor.half().float()) / 2 for name, tensor in after().items()}
    for name, tensor in averaged.items():
        assert tensor.dtype == torch.float32
        assert torch.allclose(tensor, halves[name], rtol=1e-6, atol=1e-8), name
