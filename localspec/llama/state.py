"""State: a copy of a KV cache."""

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from localspec.llama.sequence import KVSequence

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


def state_of(text: "KVSequence") -> State:
    """As `KVSequence.state`."""
    if text.context.has_failed:
        text.context.renew()
    text.roll_back()
    data = text.memory.copy() if text.memory.length else None
    if data is None:
        return State((), np.empty(0, np.uint8))
    return State(tuple(text.tokens[: text.memory.length]), data)


def restore(text: "KVSequence", state: State) -> bool:
    """As `KVSequence.restore`."""
    text.truncate(0)
    if not state.tokens or len(state.tokens) > text.n_ctx:
        return not state.tokens
    restored = text.memory.load(state.data, len(state.tokens))
    if restored:
        text.tokens = list(state.tokens)
    return restored


def pointer_to(copy: Copy) -> Any:
    """The pointer to a copy's bytes, for the library."""
    return copy.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
