"""Masked jigsaw: shuffled patches share E_unk, so the gradient does not hold their order."""

from mjp.privacy.defence import Accuracy, Defence, Number
from mjp.privacy.jigsaws import draw_jigsaw, masked_config

DEFENCE = Defence(
    name="mjp",
    help="masked jigsaw: shuffled patches share E_unk; every picture has a jigsaw of its own",
    number=Number("γ", 0, 1),
    accuracy=Accuracy.MASKED_JIGSAW,
    group="jigsaw",
    conflicts={"no-pe": "without position embeddings (no-pe) there is nothing for mjp to hide"},
    order=20,
    config=masked_config,
    plan=draw_jigsaw,
)
