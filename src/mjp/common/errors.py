"""One exception for what a caller got wrong. The command line prints its sentence and exits with code 2."""

import reprlib
from typing import Any


class InputError(ValueError):
    """Bad input: the message names what is wrong and what to do about it."""


def shorten(value: Any, length: int = 80) -> str:
    """A value as a message may quote it: on one line, and never more than `length` characters of somebody's file."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = length
    try:
        text = short.repr(value)
    except ValueError:  # Python does not print integers of thousands of digits
        text = f"a number of more than 10^{length}"
    return text if len(text) <= length else f"{text[: length - 1]}…"


def first_line(error: BaseException, length: int = 160) -> str:
    """What an exception of another library says, as far as it fits on a line: some write paragraphs."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return text if len(text) <= length else f"{text[: length - 1]}…"
