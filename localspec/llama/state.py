"""State: a copy of a KV cache."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A copy of a KV cache.

    tokens: the text in the cache. data: the library's bytes, (n,) uint8; only a context of the same
    model with the same settings can load them.
    """

    tokens: tuple[int, ...]
    data: NDArray[np.uint8]
