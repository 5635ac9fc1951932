"""Masked jigsaw with one jigsaw for all pictures of a step."""

from functools import partial

from mjp.privacy.defence import Accuracy, Defence, Number
from mjp.privacy.jigsaws import draw_jigsaw, masked_config

DEFENCE = Defence(
    name="mjp-shared",
    help="as mjp, with one jigsaw for the batch",
    number=Number("γ", 0, 1),
    accuracy=Accuracy.MASKED_JIGSAW,
    group="jigsaw",
    conflicts={"no-pe": "without position embeddings (no-pe) there is nothing for mjp to hide"},
    order=20,
    config=partial(masked_config, shared=True),
    plan=partial(draw_jigsaw, shared=True),
)
