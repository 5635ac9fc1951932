"""The ClientApp. Every update is audited by the mod, after anything else that changes it."""

from typing import Any

from flwr.clientapp import ClientApp

from leakaudit.task import local_client
from mjp.federated.flower import LeakAudit, train_message

app = ClientApp()


@app.train(mods=[LeakAudit()])
def train(message: Any, context: Any) -> Any:
    node = context.node_config
    client = local_client(
        int(node["partition-id"]), int(node["num-partitions"]), str(node.get("secret-key", "")), **context.run_config
    )
    return train_message(message, client)
