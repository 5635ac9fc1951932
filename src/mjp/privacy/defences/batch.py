"""Several pictures in one gradient."""

from mjp.privacy.defence import Accuracy, Defence, Number

DEFENCE = Defence(
    name="batch",
    help="a gradient of B pictures",
    number=Number("B", 1, 4096, whole=True),
    accuracy=Accuracy.UNCHANGED,
    order=60,
    batch=int,
)
