"""Flower: the audit as a client mod, the log as a strategy. Needs the extra mjp[flower] (flwr 1.41 or newer).

app = ClientApp()

@app.train(mods=[LeakAudit()])                      # the last mod of a list is the nearest to the training:
def train(message, context): ...                    # put the audit first, so that it sees what leaves

strategy = AuditedStrategy(FedAvg(), folder)        # in the ServerApp
"""

try:
    import flwr  # noqa: F401
except ImportError as error:
    raise ImportError("mjp.federated.flower needs Flower: pip install 'mjp[flower]'") from error

from mjp.federated.flower.client import train_message
from mjp.federated.flower.mod import LeakAudit
from mjp.federated.flower.records import arrays_of, tensors_of
from mjp.federated.flower.strategy import AuditedStrategy

__all__ = ["AuditedStrategy", "LeakAudit", "arrays_of", "tensors_of", "train_message"]
