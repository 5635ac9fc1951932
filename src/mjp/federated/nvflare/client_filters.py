"""The filters of a site: one keeps the weights that came, one audits the update that leaves."""

from pathlib import Path
from typing import Any

from nvflare.apis.dxo import DataKind
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply

from mjp.common.errors import InputError
from mjp.federated.auditor import ATTACKS, LeakReport
from mjp.federated.details import keep_details
from mjp.federated.nvflare.exchange import (
    FIGURES,
    KINDS,
    META,
    SENT,
    Sent,
    amount,
    amount_aside,
    peer_of,
    read_dxo,
    round_of,
    tensors_of,
)
from mjp.federated.settings import find_auditor, read_settings

MAX_ASIDE = 10_000  # numbers and characters beside the weights: names, rounds and metrics need far fewer


class KeepWeights(Filter):
    """Keeps the weights of a task for LeakAudit (on a client) or for AuditLog (on the server); changes nothing."""

    def process(self, shareable: Any, fl_ctx: Any) -> Any:
        dxo = read_dxo(shareable)
        if dxo is not None and dxo.data_kind == DataKind.WEIGHTS and dxo.data:
            number = round_of(shareable)
            earlier = fl_ctx.get_prop(SENT)
            asked = earlier.clients if isinstance(earlier, Sent) and earlier.round == number else ()
            clients = tuple(sorted({*asked, peer_of(fl_ctx)} - {""}))
            # sticky: on the server the result comes in another context of the same run
            fl_ctx.set_prop(SENT, Sent(tensors_of(dxo.data), number, clients), private=True, sticky=True)
        return shareable


class LeakAudit(Filter):
    """Audits the update in a task's result, adds the figures to its meta, and withholds it above a limit.

    It takes whole weights and weight differences. KeepWeights must be among the filters of the task's data. An update
    that is withheld reaches the server as a result with an error, which FedAvg leaves out as long as enough others
    come.

    Every argument is also an attribute of the same name, from which NVFlare writes a job's config. They mean what they
    mean in AuditSettings. With `strict` and a limit, anything but weights and a few metrics is withheld too, also
    weights that are sent as metrics, in the meta or in a header. What is public about an update comes from here, or
    from the key "mjp" of the result's meta: {"batch": 1, "steps": 1, "lr": 0.01}. Of a result that reports an error,
    only the error leaves.
    """

    def __init__(
        self,
        model: str = "mini-cifar10-mjp",
        defence: str = "none",
        attacks: str = ",".join(ATTACKS),
        limit: float = -1.0,
        strict: bool = False,
        prior: str = "",
        details: str = "",
        batch: int = 0,
        steps: int = 0,
        lr: float = 0.0,
        optimizer: str = "sgd",
    ) -> None:
        super().__init__()
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        for name, value in given.items():
            setattr(self, name, value)
        self.settings = read_settings(given, "")
        find_auditor(self.settings)  # wrong settings are refused here, before anything was trained

    def process(self, shareable: Any, fl_ctx: Any) -> Any:
        code = shareable.get_return_code(ReturnCode.OK)
        dxo = read_dxo(shareable)
        aside = amount_aside(shareable, dxo)
        if code != ReturnCode.OK:
            return shareable if dxo is None and aside <= MAX_ASIDE else make_reply(code)
        if dxo is not None and dxo.data_kind == DataKind.METRICS and aside + amount(dxo.data) <= MAX_ASIDE:
            return shareable
        report = self._audit(dxo, fl_ctx, aside)
        sent = fl_ctx.get_prop(SENT)
        number = sent.round if isinstance(sent, Sent) else 0
        if self.settings.details:
            client = str(fl_ctx.get_identity_name())
            if reason := keep_details(Path(self.settings.details), report, client=client, round_number=number):
                self.log_warning(fl_ctx, reason)
        if report.withheld:
            self.log_warning(fl_ctx, f"update withheld by the leak audit: {report.status}, match {report.match:.3f}")
            return make_reply(ReturnCode.TASK_RESULT_FILTER_ERROR)
        self.log_info(fl_ctx, f"leak audit of round {number}: {report.status}, match {report.match:.3f}")
        if dxo is None:
            return shareable
        dxo.set_meta_prop(FIGURES, report.figures())
        return dxo.update_shareable(shareable)

    def _audit(self, dxo: Any, fl_ctx: Any, aside: int) -> LeakReport:
        auditor = find_auditor(self.settings)
        sent = fl_ctx.get_prop(SENT)
        try:
            if dxo is None or dxo.data_kind not in KINDS or not dxo.data:
                raise InputError("the result holds neither weights nor weight differences")
            if not isinstance(sent, Sent):
                raise InputError("add the filter KeepWeights to the data of the task")
            if aside > MAX_ASIDE:
                raise InputError(f"beside its weights the result holds {aside} numbers and characters")
            public = dxo.get_meta_prop(META, {})
            info = {"kind": KINDS[dxo.data_kind], **self.settings.info(public if isinstance(public, dict) else {})}
            return auditor.audit(sent.weights, tensors_of(dxo.data), info)
        except Exception as error:  # the audit must not end a job; whether the update may leave is decided alike
            return auditor.refuse(error)
