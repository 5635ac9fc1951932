"""Text from outside, made fit for a terminal, and for JSON."""

from unicodedata import category


def printable(text: object) -> str:
    """The text with every control character and undecodable byte replaced, as file names may contain them.

    Spaces of all kinds stay: macOS writes narrow ones into the names of screenshots.
    """
    return "".join(letter if letter.isprintable() or category(letter) == "Zs" else "�" for letter in str(text))


def as_text(path: object) -> str:
    """A path as JSON can hold it, so that programs can open it: only bytes that are not text are replaced."""
    return str(path).encode(errors="surrogateescape").decode(errors="replace")
