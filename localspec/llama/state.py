"""State: a copy of a KV cache."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The library's bytes, (n,) uint8.
Copy = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A copy of a KV cache.

    tokens: the text in the cache. data: the library's bytes, (n,) uint8; only a context of the same
    model with the same settings can load them.
    """

    tokens: tuple[int, ...]
    data: Copy


NO_STATE = State((), np.empty(0, np.uint8))


def pointer_to(copy: Copy) -> Any:
    """The pointer to a copy's bytes, for the library."""
    return copy.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
