"""Position embeddings that are not trained."""

from mjp.privacy.defence import Defence
from mjp.privacy.names import is_positional

DEFENCE = Defence(
    name="frozen-pe",
    help="position embeddings are not trained, so they have no gradient",
    group="positions",
    order=10,
    trains=lambda name: not is_positional(name),
)
