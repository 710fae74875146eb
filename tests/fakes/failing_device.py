"""A device that fails in some decodes, and works again behind them."""

from collections.abc import Iterator
from contextlib import contextmanager

import llama_cpp
import pytest

from localspec.llama import library


@contextmanager
def device_fails(times: int, *, later: bool, after: int = 0) -> Iterator[list[None]]:
    """So many decodes fail on the device, after some that do not; those that are left are told.

    later: the library only logs that, as with Metal.
    """
    decode, left, before = llama_cpp.llama_decode, [None] * times, [None] * after

    def failing(handle: object, batch: object) -> int:
        if before:
            before.pop()
        elif left:
            left.pop()
            if not later:
                return -3
            decode(handle, batch)
            library._capture(4, b"x: error: command buffer 0 failed with status 5\n", None)
            return 0
        return int(decode(handle, batch))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llama_cpp, "llama_decode", failing)
        yield left
