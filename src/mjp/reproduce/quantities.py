"""What a table can show: the names of quantities, and how each is printed.

A quantity is a name, or a name with the γ of the test behind an @: `top1`, `consistency@0.5`.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from mjp.common.errors import InputError, shorten


class Style(NamedTuple):
    """How a quantity is printed: multiplied by a factor, with so many digits."""

    title: str
    factor: float
    digits: int

    @property
    def unit(self) -> str:
        """The unit of a difference: points of percentages, dB, patches, or none."""
        unit = self.title.partition(", ")[2]
        return "points" if unit == "%" else unit


STYLES = {
    "top1": Style("top-1, %", 100, 2),
    "consistency": Style("consistency, %", 100, 2),
    "top1_kept": Style("top-1 not told, %", 100, 2),
    "consistency_kept": Style("consistency not told, %", 100, 2),
    "top1_uniform": Style("top-1 under a uniform shuffle, %", 100, 2),
    "consistency_uniform": Style("consistency under a uniform shuffle, %", 100, 2),
    "top1_kept_uniform": Style("top-1 not told under a uniform shuffle, %", 100, 2),
    "consistency_kept_uniform": Style("consistency not told under a uniform shuffle, %", 100, 2),
    "diff_norm": Style("Diff.Norm", 1, 2),
    "diff_relative": Style("relative Diff.Norm", 1, 3),
    "top1_halfway": Style("top-1 halfway through training, %", 100, 2),
    "index_error": Style("1-D error, patches", 1, 3),
    "place_error": Style("2-D error, patches", 1, 3),
    "corruption": Style("mean error, %", 100, 2),
    "mce": Style("mCE, %", 100, 2),
    "step_cost": Style("cost of a training step, %", 100, 1),
    "leak": Style("leak, dB", 1, 1),
    "leak_guess": Style("guess, dB", 1, 1),
    "leak_a": Style("leak (a), dB", 1, 1),
    "leak_b": Style("leak (b), dB", 1, 1),
    "leak_c": Style("leak (c), dB", 1, 1),
    "miou": Style("mIoU, %", 100, 2),
    "macc": Style("mAcc, %", 100, 2),
}
AT_RATIOS = {
    name
    for name in STYLES
    if name.startswith(("top1", "consistency", "diff_norm", "diff_relative")) and name != "top1_halfway"
}
DEFAULT = ("top1", "consistency@0.5", "top1@0.5", "diff_norm@0.5", "diff_relative@0.5")  # columns of a table


def style(quantity: str) -> Style:
    """How a quantity is printed; its γ becomes part of the title."""
    name, _, ratio = quantity.partition("@")
    plain = STYLES[name]
    if not ratio:
        return plain
    words, comma, unit = plain.title.partition(",")
    return plain._replace(title=f"{words} at γ = {ratio}{comma}{unit}")


def check_quantity(quantity: Any, ratios: Collection[float], sweep: Collection[float]) -> None:
    """Refuse a quantity that is not measured on a scale with these γ: the sweep is block-wise and told what moved."""
    name, at, ratio = str(quantity).partition("@")
    if name not in STYLES:
        raise InputError(f"there is no quantity {shorten(name)}: choose from {', '.join(STYLES)}")
    if at and name not in AT_RATIOS:
        raise InputError(f"{name} is not measured by γ: write it without {shorten(at + ratio)}")
    if not at and name in AT_RATIOS and name != "top1":
        raise InputError(f"{name} is measured by γ: write one behind it, as in {name}@{min(ratios):g}")
    if at:
        swept = not name.endswith(("_kept", "_uniform"))
        _check_ratio(quantity, ratio, {*ratios, *sweep} if swept else set(ratios))


def _check_ratio(quantity: str, text: str, ratios: Collection[float]) -> None:
    try:
        ratio = float(text)
    except ValueError as error:
        raise InputError(f"behind the @ of {shorten(quantity)} must stand a number, the γ of the test") from error
    if not any(abs(ratio - measured) < 1e-9 for measured in ratios):
        raise InputError(
            f"the γ of {shorten(quantity)} is not one at which it is measured "
            f"({', '.join(f'{measured:g}' for measured in sorted(ratios))}): add it, or choose another"
        )
