"""AuditedStrategy: any strategy of Flower, with a log of the audit, faults kept out, and a run that can continue."""

from collections.abc import Callable, Iterable
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.serverapp.strategy import Strategy
from flwr.supercore import log

from mjp.common.errors import InputError
from mjp.common.runs.lock import hold_folder
from mjp.federated.flower.records import arrays_of, first_config, first_metrics, make_alike, tensors_of
from mjp.federated.journal import ADVICE, Entry, Journal, entry_of_figures
from mjp.federated.leak_log import LeakLog
from mjp.federated.screen import fault_of
from mjp.federated.summary import finish, round_line

MAX_WEIGHT = 1e15  # pictures of a client: sums of larger numbers overflow, and the average would be zero


class AuditedStrategy(Strategy):
    """Wraps a strategy.

    Every round it writes down what the clients' audits found, keeps replies out of the average that are not of this
    model or not finite, and saves the global weights: the same command continues a run that was killed. State that
    the wrapped strategy itself keeps between rounds (momentum of FedAdam and the like) starts anew then. One server
    at a time works in a folder; a run that is complete there is not trained again.

    Args:
        strategy: What aggregates.
        folder: For journal.json, results.json and the charts. `mjp report PAGE.html FOLDER` shows them.
        settings: Whatever describes the run; a folder with other settings is refused. `model` and `defence` are shown.
        leak_log: Keep the updates in this folder for `mjp attack-update`; None keeps nothing.
        max_megabytes: Bound of the leak log.
        info: For the leak log, what is public about every update beside its numbers: `lr`, `batch`, `steps`, `size`, …;
            it comes before what a client states about its own.
        min_updates: A round with fewer usable updates ends the run with an error.
    """

    def __init__(
        self,
        strategy: Any,
        folder: Path,
        *,
        settings: dict[str, Any] | None = None,
        leak_log: Path | None = None,
        max_megabytes: float = 500,
        info: dict[str, Any] | None = None,
        min_updates: int = 1,
    ) -> None:
        super().__init__()
        self.strategy = strategy
        self.journal = Journal(folder / "server", {"engine": "Flower", **(settings or {})})
        self.folder = folder
        self.log = None if leak_log is None else LeakLog(leak_log, max_megabytes=max_megabytes)
        self.info = info or {}
        self.min_updates = min_updates
        self.weight = str(getattr(strategy, "weighted_by_key", "num-examples"))  # the metric that weighs a client
        self.offset = 0  # rounds of earlier starts
        self.sent: dict[str, Any] = {}
        self.asked: list[int] = []

    def start(
        self,
        grid: Any,
        initial_arrays: Any,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: Any = None,
        evaluate_config: Any = None,
        evaluate_fn: Callable[[int, Any], Any] | None = None,
    ) -> Any:
        """As Strategy.start, from the last finished round on; at the end results.json is there, after a failure not."""
        with hold_folder(self.folder) as free:
            if not free:
                raise InputError(f"another server works in {self.folder}: wait until it ends, or name another folder")
            self.journal = Journal(self.journal.folder, self.journal.settings)  # as an earlier server left it
            arrays = self._resume(initial_arrays, num_rounds)
            (self.folder / "results.json").unlink(missing_ok=True)
            evaluate = None if evaluate_fn is None else self._noting(evaluate_fn)
            left = max(0, num_rounds - self.offset)
            result = super().start(grid, arrays, left, timeout, train_config, evaluate_config, evaluate)
            if not left:
                result.arrays = arrays
            finish(self.folder, {self._name(): self.journal}, {**self.journal.settings, "rounds": num_rounds})
        return result

    def _resume(self, initial_arrays: Any, num_rounds: int) -> Any:
        """The weights to begin with: those after the last finished round, if there is one."""
        self.offset = self.journal.rounds
        weights = self.journal.weights()
        if weights is None:
            return initial_arrays
        if fault := fault_of(weights, dict(initial_arrays.to_torch_state_dict())):
            raise InputError(f"{self.folder} holds a run of another model ({fault}): {ADVICE}")
        log(INFO, "continuing after round %s, which an earlier start finished", self.offset)
        if self.offset >= num_rounds:
            log(WARNING, "all %s rounds are done, nothing is trained: name another folder for a new run", num_rounds)
        return arrays_of(weights)

    def _name(self) -> str:
        return str(self.journal.settings.get("defence", "Flower"))

    def _noting(self, evaluate_fn: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
        def evaluate(server_round: int, arrays: Any) -> Any:
            number = server_round + self.offset
            metrics = evaluate_fn(number, arrays)
            if metrics is not None and "accuracy" in metrics:
                self.journal.note_accuracy(number, float(metrics["accuracy"]))
            return metrics

        return evaluate

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        self.sent = dict(arrays.to_torch_state_dict())
        messages = list(self.strategy.configure_train(server_round + self.offset, arrays, config, grid))
        self.asked = [message.metadata.dst_node_id for message in messages]
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        number = server_round + self.offset
        self._keep(lambda log: log.keep_weights(number, self.sent))
        usable, entries = [], []
        answered = set()
        for reply in replies:
            answered.add(reply.metadata.src_node_id)
            entry = self._examine(number, reply)
            entries.append(entry)
            if not entry.fault:
                usable.append(reply)
        entries += [Entry(round=number, client=str(n), fault="no answer") for n in self.asked if n not in answered]
        log(INFO, round_line(number, entries))
        try:
            arrays, metrics = self._aggregate(number, usable)
        except Exception:
            self.journal.add(*entries)
            raise
        after = self.sent if arrays is None else dict(arrays.to_torch_state_dict())
        self.journal.close_round(number, after, entries)
        return arrays, metrics

    def _aggregate(self, number: int, usable: list[Any]) -> tuple[Any, Any]:
        if len(usable) < self.min_updates:
            raise RuntimeError(f"round {number}: {len(usable)} usable updates, at least {self.min_updates} are needed")
        make_alike(usable, self.sent)
        result: tuple[Any, Any] = self.strategy.aggregate_train(number, usable)
        return result

    def _keep(self, write: Callable[[LeakLog], object]) -> None:
        """Write to the leak log, if there is one; a full disk must not end the training."""
        try:
            if self.log is not None:
                write(self.log)
        except Exception as error:
            log(WARNING, "leak log: %s", error)

    def _examine(self, number: int, reply: Any) -> Entry:
        """The entry of a reply; anything wrong with it is its fault, not an exception."""
        client = str(reply.metadata.src_node_id)
        if reply.has_error():
            return Entry(round=number, client=client, fault=_first_line(reply.error.reason) or "the client failed")
        try:
            metrics = first_metrics(reply.content)
            update = tensors_of(reply.content)
            fault = fault_of(update, self.sent)
            if not fault and not _is_weight(metrics.get(self.weight)):
                fault = f"its metrics lack a positive number {self.weight}"
            entry = entry_of_figures(number, client, metrics, fault=fault)
            if not fault:
                self._keep(lambda log: log.keep_update(number, client, update, self._public(reply, metrics)))
            return entry
        except Exception as error:
            log(WARNING, "reply of node %s: %s", client, error)
            return Entry(round=number, client=client, fault=f"unreadable ({type(error).__name__})")

    def _public(self, reply: Any, metrics: dict[str, Any]) -> dict[str, Any]:
        count = int(metrics.get("num-examples", 1))
        return {"kind": "fedavg", "batch": count, **first_config(reply.content), **self.info}

    def configure_evaluate(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        return self.strategy.configure_evaluate(server_round + self.offset, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Any]) -> Any:
        """The strategy's own; replies that do not fit together cost the figures of this round, not the run."""
        try:
            return self.strategy.aggregate_evaluate(server_round + self.offset, replies)
        except Exception as error:
            log(WARNING, "evaluation of round %s: %s", server_round + self.offset, error)
            return None

    def summary(self) -> None:
        log(INFO, "\t├──> Leak audit: journal in %s", self.journal.folder)
        self.strategy.summary()


def _is_weight(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value <= MAX_WEIGHT


def _first_line(reason: Any) -> str:
    """Some engines send whole tracebacks."""
    return next(iter(str(reason).strip().splitlines()), "")[:200]
