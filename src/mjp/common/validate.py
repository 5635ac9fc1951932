"""What an argument must be, in one sentence when it is not."""

import math
from numbers import Integral, Real
from typing import Any

from mjp.common.errors import InputError, shorten

MAX_SEED = 2**63 - 1  # what torch and NumPy generators and derived seeds all take
MAX_WORKERS = 1024


def whole(name: str, value: Any, *, least: int = 0, most: int | None = None) -> int:
    """A whole number between two bounds; NumPy's count, booleans do not."""
    top = math.inf if most is None else most
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= top:
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{name} must be a whole number {bounds}, not {shorten(value)}")
    return int(value)


def seed(name: str, value: Any) -> int:
    """A whole number that every random generator takes."""
    return whole(name, value, most=MAX_SEED)


def workers(name: str, value: Any) -> int:
    """A number of processes that read pictures."""
    return whole(name, value, most=MAX_WORKERS)


def number(name: str, value: Any, *, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number between two bounds."""
    try:
        real = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:  # a whole number of hundreds of digits
        real = math.inf
    if not (math.isfinite(real) and least <= real <= most):
        bounds = f"lie between {least:g} and {most:g}" if most < math.inf else f"be a number of at least {least:g}"
        raise InputError(f"{name} must {bounds}, not {shorten(value)}")
    return real


def fraction(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    return number(name, value, least=0, most=1)


def pair(name: str, value: Any, *, least: int = 1) -> tuple[int, int]:
    """Two whole numbers, (height, width)."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(f"{name} must be two whole numbers (height, width), not {shorten(value)}")
    return whole(name, value[0], least=least), whole(name, value[1], least=least)


def aspect_range(value: Any) -> tuple[float, float]:
    """(smallest, largest) height/width of a block."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(f"aspect must be two numbers (smallest, largest), not {shorten(value)}")
    low, high = number("aspect", value[0], least=0), number("aspect", value[1], least=0)
    if not 0 < low <= high:
        raise InputError(f"aspect must be (smallest, largest) with 0 < smallest <= largest, not {shorten(value)}")
    return low, high


def check_options(options: Any) -> None:
    """Check the options that mean the same in every command: seeds and worker processes."""
    for name, check in (("seed", seed), ("workers", workers)):
        if hasattr(options, name):
            check(f"--{name}", getattr(options, name))
