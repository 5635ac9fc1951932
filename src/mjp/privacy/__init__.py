"""Privacy: what the update of a federated-learning client gives away.

    findings = mjp.privacy.audit_update("weights.safetensors", "update.safetensors", {"batch": 1}, model)
    findings = mjp.privacy.audit_pictures("timm:deit_small_patch16_224", pictures, defences=["none", "mjp:0.27"])

Names load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mjp.privacy.examine.conclusion import Conclusion as Conclusion
    from mjp.privacy.examine.conclusion import Findings as Findings
    from mjp.privacy.examine.finding import Finding as Finding
    from mjp.privacy.examine.finding import Verdict as Verdict
    from mjp.privacy.examine.pictures import audit_pictures as audit_pictures
    from mjp.privacy.examine.update import audit_update as audit_update
    from mjp.privacy.info import UpdateInfo as UpdateInfo
    from mjp.privacy.metrics import Score as Score

_HOME = {
    "Conclusion": "mjp.privacy.examine.conclusion",
    "Findings": "mjp.privacy.examine.conclusion",
    "Finding": "mjp.privacy.examine.finding",
    "Verdict": "mjp.privacy.examine.finding",
    "audit_pictures": "mjp.privacy.examine.pictures",
    "audit_update": "mjp.privacy.examine.update",
    "UpdateInfo": "mjp.privacy.info",
    "Score": "mjp.privacy.metrics",
}
__all__ = ["Conclusion", "Finding", "Findings", "Score", "UpdateInfo", "Verdict", "audit_pictures", "audit_update"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mjp.privacy' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
