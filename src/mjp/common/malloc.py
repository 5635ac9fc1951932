"""Keep freed memory for the next step.

A network on a CPU allocates and frees the same large blocks in every step. The C library of Linux gives such blocks
back to the kernel at once, which then has to clear and map them anew: that can take as long as the arithmetic.
"""

import ctypes
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4  # the numbers that glibc's mallopt gives them


def keep_freed_memory() -> None:
    """For a process of its own (a command); a library must leave this to its host. Nothing happens without glibc."""
    if not sys.platform.startswith("linux"):
        return
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is not None:
        tune(MMAP_MAX, 0)  # large blocks come from the heap, too
        tune(TRIM_THRESHOLD, 2**31 - 1)
        tune(TOP_PAD, 2**26)
