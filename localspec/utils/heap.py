"""Heap: memory that is free, but that this process still holds."""

import ctypes
import sys


def give_back_heap() -> None:
    """Give memory that nothing uses back to the system, where its library can (glibc)."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)
