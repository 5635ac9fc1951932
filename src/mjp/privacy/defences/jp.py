"""Jigsaw without masking: patches are shuffled, and every slot keeps its position, even in a model that has E_unk."""

from mjp.method.config import variant
from mjp.privacy.defence import Accuracy, Defence, Number
from mjp.privacy.jigsaws import draw_jigsaw

DEFENCE = Defence(
    name="jp",
    help="jigsaw: a share γ of the patches is shuffled, positions are kept",
    number=Number("γ", 0, 1),
    accuracy=Accuracy.JIGSAW,
    group="jigsaw",
    order=20,
    config=lambda config, ratio: variant("E", ratio=ratio),
    plan=draw_jigsaw,
)
