"""NVFlare: the audit as filters, which a site can enforce by its privacy policy. Needs the extra mjp[nvflare].

    recipe.add_client_input_filter(KeepWeights(), tasks=["train"])
    recipe.add_client_output_filter(LeakAudit(model="mini-cifar10-mjp", limit=0.97), tasks=["train"])
    recipe.add_server_output_filter(KeepWeights(), tasks=["train"])
    recipe.add_server_input_filter(AuditLog(folder="out/nvflare"), tasks=["train"])

Or in a site's local/privacy.json, by path: mjp.federated.nvflare.KeepWeights and mjp.federated.nvflare.LeakAudit.
"""

try:
    import nvflare  # noqa: F401
except ImportError as error:
    raise ImportError("mjp.federated.nvflare needs NVFlare: pip install 'mjp[nvflare]'") from error

from mjp.federated.nvflare.client_filters import KeepWeights, LeakAudit
from mjp.federated.nvflare.model import SharedModel
from mjp.federated.nvflare.recipe import TolerantFedAvgRecipe
from mjp.federated.nvflare.server_filter import AuditLog, finish_run

__all__ = ["AuditLog", "KeepWeights", "LeakAudit", "SharedModel", "TolerantFedAvgRecipe", "finish_run"]
