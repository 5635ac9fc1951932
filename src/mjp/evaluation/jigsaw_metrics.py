"""What a jigsaw changes, picture by picture. A metric is one function here and its name in METRICS.

top1           whether the answer under the jigsaw is right
consistency    whether the predicted class survives the jigsaw: argmax F(x) = argmax F(x̃)
diff_norm      ‖f(x) − f(x̃)‖₂, f = what the classifier sees; depends on the scale of the features
diff_relative  the same divided by ‖f(x)‖₂, comparable between models
"""

from collections.abc import Callable

from torch import Tensor

from mjp.method.model import MJPOutput

Metric = Callable[[MJPOutput, MJPOutput, Tensor], Tensor]  # (without jigsaw, with jigsaw, (B,) labels) → (B,)


def top1(_: MJPOutput, shuffled: MJPOutput, labels: Tensor) -> Tensor:
    return shuffled.logits.argmax(1) == labels


def consistency(plain: MJPOutput, shuffled: MJPOutput, _: Tensor) -> Tensor:
    return plain.logits.argmax(1) == shuffled.logits.argmax(1)


def diff_norm(plain: MJPOutput, shuffled: MJPOutput, _: Tensor) -> Tensor:
    return (plain.features - shuffled.features).norm(dim=1)


def diff_relative(plain: MJPOutput, shuffled: MJPOutput, labels: Tensor) -> Tensor:
    return diff_norm(plain, shuffled, labels) / plain.features.norm(dim=1).clamp(min=1e-12)


METRICS: dict[str, Metric] = {
    "top1": top1,
    "consistency": consistency,
    "diff_norm": diff_norm,
    "diff_relative": diff_relative,
}
