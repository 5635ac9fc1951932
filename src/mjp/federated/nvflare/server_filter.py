"""AuditLog: what the clients' audits found, faults kept out of the average, and the updates themselves if wanted."""

import math
from pathlib import Path
from typing import Any

from nvflare.apis.dxo import MetaKey
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply
from nvflare.app_common.app_event_type import AppEventType
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.results import Results
from mjp.federated.journal import Entry, Journal, entry_of_figures
from mjp.federated.leak_log import LeakLog
from mjp.federated.nvflare.exchange import (
    FIGURES,
    KINDS,
    META,
    SENT,
    Sent,
    change_kind,
    change_types,
    peer_of,
    read_dxo,
    tensors_of,
)
from mjp.federated.screen import fault_of
from mjp.federated.summary import finish, lost_rounds


class AuditLog(Filter):
    """A filter of the server for the results that come in. KeepWeights must be among those of the data that go out.

    A result that is not of this model or not finite becomes a result with an error, which FedAvg leaves out as long
    as enough others come. FedAvg does not tell weights from differences: results become what the first one was.
    NVFlare keeps the model itself; a job that is started again begins a new journal.

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
        self.kind = ""  # of the first update
        self.updates = LeakLog(Path(leak_log), max_megabytes=max_megabytes) if leak_log else None

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type == EventType.START_RUN:
            self.journal.reset()
            self.accuracies.clear()
            self.kind = ""
        elif event_type == AppEventType.BEFORE_AGGREGATION and isinstance(sent := fl_ctx.get_prop(SENT), Sent):
            answered = {entry.client for entry in self.journal.entries if entry.round == sent.round}
            late = [client for client in sent.clients if client not in answered]
            self.journal.add(*(Entry(round=sent.round, client=client, fault="no answer") for client in late))

    def process(self, shareable: Any, fl_ctx: Any) -> Any:
        client = peer_of(fl_ctx) or "client"
        sent = fl_ctx.get_prop(SENT)
        sent = sent if isinstance(sent, Sent) else Sent({}, 0)
        code = shareable.get_return_code(ReturnCode.OK)
        if code != ReturnCode.OK:
            self.journal.add(Entry(round=sent.round, client=client, fault=f"no update: {code}"))
            return shareable
        dxo = read_dxo(shareable)
        entry = self._examine(dxo, sent, client)
        self.journal.add(entry)
        self.log_info(fl_ctx, f"client {client}, round {entry.round}: {entry.fault or entry.status}")
        return make_reply(ReturnCode.EXECUTION_RESULT_ERROR) if entry.fault else dxo.update_shareable(shareable)

    def _examine(self, dxo: Any, sent: Sent, client: str) -> Entry:
        """The entry of a result; anything wrong with it is its fault, not an exception."""
        try:
            if dxo.data_kind not in KINDS:
                return Entry(round=sent.round, client=client, fault=f"neither weights nor differences: {dxo.data_kind}")
            update = tensors_of(dxo.data)
            fault = fault_of(update, sent.weights or update)
            self._note_accuracy(dxo, sent.round)
            if not fault:
                self._keep(dxo, update, sent, client)
                change_types(dxo, sent.weights)
                self.kind = self.kind or dxo.data_kind
                if dxo.data_kind != self.kind:
                    change_kind(dxo, self.kind, sent.weights)
            figures = dxo.get_meta_prop(FIGURES, {})
            return entry_of_figures(sent.round, client, figures if isinstance(figures, dict) else {}, fault=fault)
        except Exception as error:
            return Entry(round=sent.round, client=client, fault=f"unreadable ({type(error).__name__})")

    def _keep(self, dxo: Any, update: dict[str, Tensor], sent: Sent, client: str) -> None:
        """Write to the leak log, if there is one; a full disk must not end the training."""
        if self.updates is None:
            return
        public = dxo.get_meta_prop(META, {})
        info = {**(public if isinstance(public, dict) else {}), "kind": KINDS[dxo.data_kind]}
        try:
            self.updates.keep_weights(sent.round, sent.weights)
            self.updates.keep_update(sent.round, client, update, info)
        except Exception as error:
            self.logger.warning(f"leak log: {error}")

    def _note_accuracy(self, dxo: Any, number: int) -> None:
        """What clients measured of the global model before they trained it: the mean over the clients."""
        metrics = dxo.get_meta_prop(MetaKey.INITIAL_METRICS, {})
        try:
            accuracy = float(metrics["accuracy"])
        except (KeyError, TypeError, ValueError):  # none, or nonsense: no reason to leave the update out
            return
        if not math.isfinite(accuracy):
            return
        values = self.accuracies.setdefault(number, [])
        values.append(accuracy)
        self.journal.note_accuracy(number - 1, sum(values) / len(values))


def finish_run(folder: str | Path, *, rounds: int | None = None, **settings: Any) -> Results:
    """results.json and a chart from the journal of a job that has ended, for `mjp report`.

    A job in which a round brought nothing to average, or that ended before its last round, may still end with NVFlare's
    blessing; it is refused here. `rounds` is what the job was asked for; None takes what the journal has.
    """
    journal = Journal.open(Path(folder) / "server")
    if dead := lost_rounds(journal.entries):
        raise InputError(f"the run failed: in round {dead[0]} no client sent an update that can be averaged")
    last = max((entry.round for entry in journal.entries), default=0)
    if last < (rounds or 1):
        raise InputError(f"the run failed: its journal ends after {last} of {rounds or 1} rounds; see NVFlare's log")
    if rounds is not None:
        settings["rounds"] = rounds
    name = str(journal.settings.get("defence", "NVFlare"))
    return finish(Path(folder), {name: journal}, {**journal.settings, **settings})
