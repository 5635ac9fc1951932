"""Text from outside, made fit for a terminal."""


def printable(text: object) -> str:
    """The text with every control character and undecodable byte replaced, as file names may contain them."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(text))
