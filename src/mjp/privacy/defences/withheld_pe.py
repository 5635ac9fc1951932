"""Position embeddings that are trained, but whose gradients stay with the client."""

from mjp.privacy.defence import Accuracy, Defence
from mjp.privacy.names import is_positional

DEFENCE = Defence(
    name="withheld-pe",
    help="gradients of position embeddings and of the localization head stay with the client",
    accuracy=Accuracy.UNCHANGED,
    group="positions",
    order=10,
    sends=lambda name: not is_positional(name),
)
