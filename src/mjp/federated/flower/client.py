"""What a ClientApp needs to train an MJP model: from a train message to the reply."""

from typing import Any

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from mjp.federated.client import LocalClient
from mjp.federated.flower.records import arrays_of, first_config, tensors_of


def train_message(message: Any, client: LocalClient) -> Any:
    """Train on the weights of a message, with jigsaws from the client's secret key, and reply.

    The reply has the weights, the metric `num-examples`, and what is public about the update, for audits and logs.
    """
    number = int(first_config(message.content).get("server-round", 1))
    sent = client.train(tensors_of(message.content), number)
    public = {name: list(value) if isinstance(value, tuple) else value for name, value in sent.info.items()}
    content = {
        "arrays": arrays_of(sent.weights),
        "metrics": MetricRecord({"num-examples": sent.info["batch"]}),
        "public": ConfigRecord(public),
    }
    return Message(RecordDict(content), reply_to=message)
