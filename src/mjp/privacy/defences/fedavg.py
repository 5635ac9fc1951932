"""Federated averaging: the weights after several local steps leave, not a gradient."""

from mjp.privacy.defence import Defence, LocalSteps, Number
from mjp.privacy.info import MAX_LOCAL_STEPS

LEARNING_RATE = 0.1

DEFENCE = Defence(
    name="fedavg",
    help=f"the weights after K local steps of SGD at learning rate {LEARNING_RATE}, each step with its own jigsaw",
    number=Number("K", 1, MAX_LOCAL_STEPS, whole=True),
    order=70,
    local_steps=lambda count: LocalSteps(int(count), LEARNING_RATE),
)
