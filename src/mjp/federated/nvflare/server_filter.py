"""AuditLog: what the clients' audits found, faults kept out of the average, and the updates themselves if wanted."""

from pathlib import Path
from typing import Any

from nvflare.apis.dxo import MetaKey
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply

from mjp.common.errors import InputError
from mjp.common.results import Results
from mjp.federated.journal import Entry, Journal, entry_of_figures
from mjp.federated.leak_log import LeakLog
from mjp.federated.nvflare.exchange import FIGURES, META, SENT, Sent, read_dxo, weights_after
from mjp.federated.screen import fault_of
from mjp.federated.summary import finish, lost_rounds


class AuditLog(Filter):
    """A filter of the server for the results that come in. KeepWeights must be among those of the data that go out.

    A result that is not of this model or not finite becomes a result with an error, which FedAvg leaves out as long
    as enough others come. NVFlare keeps the model itself; a job that is started again begins a new journal.

    Args:
        folder: For the journal; `finish_run(folder)` makes results.json of it, for `mjp report`.
        leak_log: Keep the updates in this folder, for `mjp attack-update`; "" keeps nothing.
        max_megabytes: Bound of the leak log.
        model: Name of the model, for the report.
        defence: What the clients do, for the report.
    """

    def __init__(
        self, folder: str, leak_log: str = "", max_megabytes: float = 500, model: str = "model", defence: str = "none"
    ) -> None:
        super().__init__()
        self.folder = folder  # the attributes from which NVFlare writes a job's config
        self.leak_log = leak_log
        self.max_megabytes = max_megabytes
        self.model = model
        self.defence = defence
        self.journal = Journal(Path(folder) / "server", {"engine": "NVFlare", "model": model, "defence": defence})
        self.accuracies: dict[int, list[float]] = {}
        self.updates = LeakLog(Path(leak_log), max_megabytes=max_megabytes) if leak_log else None

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type == EventType.START_RUN:
            self.journal.reset()
            self.accuracies.clear()

    def process(self, shareable: Any, fl_ctx: Any) -> Any:
        peer = fl_ctx.get_peer_context()
        client = str(peer.get_identity_name() if peer else "client")
        sent = fl_ctx.get_prop(SENT)
        sent = sent if isinstance(sent, Sent) else Sent({}, 0)
        code = shareable.get_return_code(ReturnCode.OK)
        if code != ReturnCode.OK:
            self.journal.add(Entry(round=sent.round, client=client, fault=f"no update: {code}"))
            return shareable
        entry = self._examine(read_dxo(shareable), sent, client)
        self.journal.add(entry)
        self.log_info(fl_ctx, f"client {client}, round {entry.round}: {entry.fault or entry.status}")
        return make_reply(ReturnCode.EXECUTION_RESULT_ERROR) if entry.fault else shareable

    def _examine(self, dxo: Any, sent: Sent, client: str) -> Entry:
        """The entry of a result; anything wrong with it is its fault, not an exception."""
        try:
            after = weights_after(dxo, sent.weights)
            fault = fault_of(after, sent.weights) if sent.weights else ""
            self._note_accuracy(dxo, sent.round)
            if self.updates is not None and not fault:
                self.updates.keep_weights(sent.round, sent.weights)
                public = dxo.get_meta_prop(META, {})
                self.updates.keep_update(sent.round, client, after, {"kind": "fedavg", **public})
            figures = dxo.get_meta_prop(FIGURES, {})
            return entry_of_figures(sent.round, client, figures if isinstance(figures, dict) else {}, fault=fault)
        except Exception as error:
            return Entry(round=sent.round, client=client, fault=f"unreadable ({type(error).__name__})")

    def _note_accuracy(self, dxo: Any, number: int) -> None:
        """What clients measured of the global model before they trained it: the mean over the clients."""
        metrics = dxo.get_meta_prop(MetaKey.INITIAL_METRICS, {}) or {}
        if "accuracy" not in metrics:
            return
        values = self.accuracies.setdefault(number, [])
        values.append(float(metrics["accuracy"]))
        self.journal.note_accuracy(number - 1, sum(values) / len(values))


def finish_run(folder: str | Path, **settings: Any) -> Results:
    """results.json and a chart from the journal of a job that has ended, for `mjp report`.

    A job in which a round brought nothing to average ends with NVFlare's blessing; it is refused here.
    """
    journal = Journal.open(Path(folder) / "server")
    if dead := lost_rounds(journal.entries):
        raise InputError(f"the run failed: in round {dead[0]} no client sent an update that can be averaged")
    name = str(journal.settings.get("defence", "NVFlare"))
    return finish(Path(folder), {name: journal}, {**journal.settings, **settings})
