"""A model without position embeddings."""

from mjp.method.config import variant
from mjp.privacy.defence import Defence

DEFENCE = Defence(
    name="no-pe",
    help="a model without position embeddings",
    group="positions",
    order=25,  # after the jigsaws: with no positions, theirs do not matter
    config=lambda config, _: variant("B"),
)
