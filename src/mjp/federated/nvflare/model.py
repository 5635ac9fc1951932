"""The shared model as NVFlare's persistor builds it on the server: a class and its arguments."""

from typing import Any

from torch import nn

from mjp.federated.client import load_weights
from mjp.models import find_model
from mjp.privacy.combination import parse
from mjp.privacy.network import shared_network


class SharedModel(nn.Module):
    """The weights that server and clients exchange, under the names that an MJP model has.

    Args:
        model: As `mjp attack-update --model` takes it.
        defence: What the clients do; it decides how the model is wrapped.
    """

    def __init__(self, model: str, defence: str = "none") -> None:
        super().__init__()
        self.subject = find_model(model, random_weights=0)
        self.network = shared_network(self.subject.model, parse(defence))

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The weights; not the state of the model's own generator, which is nobody else's business."""
        return self.network.weights()

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> None:
        load_weights(self.network, state_dict)
