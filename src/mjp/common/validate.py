"""What an argument must be, said in one sentence when it is not."""

import math
from numbers import Integral, Real
from typing import Any

from mjp.common.errors import InputError


def whole(name: str, value: Any, *, least: int = 0) -> int:
    """A whole number of at least `least`; NumPy's count, booleans do not."""
    if value is True or value is False or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def number(name: str, value: Any, *, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number between two bounds; NaN is none."""
    real = float(value) if isinstance(value, Real) and value is not True and value is not False else math.nan
    if not (math.isfinite(real) and least <= real <= most):
        bounds = f"lie between {least:g} and {most:g}" if most < math.inf else f"be a number of at least {least:g}"
        raise InputError(f"{name} must {bounds}, not {value!r}")
    return real


def pair(name: str, value: Any, *, least: int = 1) -> tuple[int, int]:
    """Two whole numbers, (height, width)."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(f"{name} must be two whole numbers (height, width), not {value!r}")
    return whole(name, value[0], least=least), whole(name, value[1], least=least)


def aspect_range(value: Any) -> tuple[float, float]:
    """(smallest, largest) height/width of a block."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(f"aspect must be two numbers (smallest, largest), not {value!r}")
    low, high = number("aspect", value[0], least=0), number("aspect", value[1], least=0)
    if not 0 < low <= high:
        raise InputError(f"aspect must be (smallest, largest) with 0 < smallest <= largest, not {value!r}")
    return low, high
