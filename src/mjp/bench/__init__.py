"""What things cost on this machine. One file per benchmark, found by its name.

NAME.py has REPEATS (the default), `measure(repeats, batch) -> figures` and `lines(figures) -> sentences`; its name is a
choice of `mjp bench`.
"""
