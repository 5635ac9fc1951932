"""One exception for what a caller got wrong. The command line prints its sentence and exits with code 2."""


class InputError(ValueError):
    """Bad input: the message names what is wrong and what to do about it."""
