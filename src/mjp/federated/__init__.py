"""Federated: train with MJP on Flower or NVFlare, and see every round what the updates give away.

    auditor = mjp.federated.LeakAuditor("mini-cifar10-mjp", defence="mjp:0.27", limit=0.97)
    report = auditor.audit(weights_that_came, weights_that_leave, {"batch": 1, "lr": 0.1})

The engines have rooms of their own: `mjp.federated.flower` (extra mjp[flower]) and `mjp.federated.nvflare` (extra
mjp[nvflare]). Names load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mjp.federated.auditor import LeakAuditor as LeakAuditor
    from mjp.federated.auditor import LeakReport as LeakReport
    from mjp.federated.leak_log import LeakLog as LeakLog
    from mjp.federated.partition import dirichlet_shares as dirichlet_shares

_HOME = {
    "LeakAuditor": "mjp.federated.auditor",
    "LeakReport": "mjp.federated.auditor",
    "LeakLog": "mjp.federated.leak_log",
    "dirichlet_shares": "mjp.federated.partition",
}
__all__ = ["LeakAuditor", "LeakLog", "LeakReport", "dirichlet_shares"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mjp.federated' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
