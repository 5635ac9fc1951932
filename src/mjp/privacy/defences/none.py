"""No defence: the yardstick."""

from mjp.privacy.defence import Accuracy, Defence

DEFENCE = Defence(
    name="none",
    help="the plain gradient of one picture",
    accuracy=Accuracy.UNCHANGED,
    group="",  # doing nothing contradicts nothing
    order=0,
)
