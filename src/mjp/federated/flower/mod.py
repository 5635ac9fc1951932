"""LeakAudit, a client mod: audits the update that leaves, adds its figures to the client's metrics."""

from collections.abc import Callable
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.app import Error, Message, MetricRecord
from flwr.common.constant import ErrorCode
from flwr.supercore import log

from mjp.federated.auditor import NOT_AUDITED, LeakReport
from mjp.federated.details import keep_details
from mjp.federated.flower.records import first_config, first_metrics, tensors_of
from mjp.federated.settings import AuditSettings, find_auditor, read_settings

CONFIG = "leak-audit."  # [tool.flwr.app.config.leak-audit] in the app's pyproject.toml
NODE_FOLDER = "leak-audit-details"  # in a node's own config: where its details go


class LeakAudit:
    """Audits what leaves a client in a train message.

    Settings come from the run's config, keys `leak-audit.model`, `.defence`, `.attacks`, `.limit`, `.strict`, … (see
    `mjp.federated.settings.AuditSettings`); arguments here are the defaults. Put the mod first in the list, outside
    of mods that clip or add noise: then it sees what really leaves.

    What is public about an update comes from the settings or, if they do not say, from the messages: `batch`, `steps`
    and `lr` from a ConfigRecord of the reply or of the train message, `batch` else from the metric `num-examples`.
    Details stay on the client, in the folder that the node's config names as `leak-audit-details`.
    """

    def __init__(self, **defaults: Any) -> None:
        self.defaults = defaults

    def __call__(self, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        reply = call_next(message, context)
        if message.metadata.message_type.split(".")[0] != "train" or reply.has_error():
            return reply
        settings = read_settings(context.run_config, CONFIG, **self.defaults)
        report = _audit(message, reply, settings)
        round_number = int(first_config(message.content).get("server-round", 0))
        client = str(context.node_config.get("partition-id", context.node_id))
        folder = str(context.node_config.get(NODE_FOLDER, settings.details))
        if folder and (reason := keep_details(Path(folder), report, client=client, round_number=round_number)):
            log(WARNING, "leak audit: %s", reason)
        if report.withheld:
            reason = f"update withheld by the leak audit: {report.status}, match {report.match:.3f}"
            log(WARNING, reason)
            return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=reason), reply_to=message)
        _add_figures(reply, report)
        return reply


def _audit(message: Any, reply: Any, settings: AuditSettings) -> LeakReport:
    try:
        auditor = find_auditor(settings)
    except Exception as error:  # without a limit wrong settings do not cost the round, and the figures say so
        log(WARNING, "leak audit: %s", error)
        matches = {name.strip(): 0.0 for name in settings.attacks.split(",")}
        sentence = f"{type(error).__name__}: {error}"
        return LeakReport(status=NOT_AUDITED, sentence=sentence, matches=matches, withheld=not settings.limit < 0)
    try:
        before, after = tensors_of(message.content), tensors_of(reply.content)
        return auditor.audit(before, after, settings.info(_public(message, reply)))
    except Exception as error:
        log(WARNING, "leak audit: %s", error)
        return auditor.refuse(error)


def _public(message: Any, reply: Any) -> dict[str, Any]:
    """What the messages say about the update."""
    config = first_config(message.content)
    public = {"batch": first_metrics(reply.content).get("num-examples"), "lr": config.get("lr")}
    for source in (config, first_config(reply.content)):
        public |= {name: source[name] for name in ("batch", "steps", "lr") if name in source}
    return public


def _add_figures(reply: Any, report: LeakReport) -> None:
    """FedAvg takes one MetricRecord with the same keys from every client: add to the one that is there."""
    records = list(reply.content.metric_records.values())
    if not records:
        reply.content["metrics"] = MetricRecord(report.figures())
        return
    for name, value in report.figures().items():
        records[0][name] = value
