"""A device that fails in some decodes, and works again behind them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import llama_cpp
import numpy as np
import pytest

from localspec.llama import library
from localspec.llama.context import Context


@contextmanager
def device_fails(times: int, *, later: bool, after: int = 0) -> Iterator[list[None]]:
    """So many passes fail on the device, after some that do not; those that are left are told.

    later: the library only logs that, as with Metal; logits and cache are wrong.
    """
    left, before = [None] * times, [None] * after

    def failing(compute: Callable[[Any, Any], int]) -> Callable[[Any, Any], int]:
        def run(handle: Any, batch: Any) -> int:
            if before:
                before.pop()
            elif left:
                left.pop()
                if not later:
                    return -3
                status = compute(handle, batch)
                library._capture(4, b"x: error: command buffer 0 failed with status 5\n", None)
                _spoil(handle, batch)
                return status
            return compute(handle, batch)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in ("llama_decode", "llama_encode"):
            patch.setattr(llama_cpp, name, failing(getattr(llama_cpp, name)))
        yield left


@contextmanager
def passes_refused(
    context: Context, status: int, *, times: int = 1, after: int = 0
) -> Iterator[list[None]]:
    """So many decodes of a context end with a status, after some that do not; yields those left.

    An aborted one (status 2) has computed a part of its rows.
    """
    left, before, compute = [None] * times, [None] * after, llama_cpp.llama_decode

    def run(handle: Any, batch: Any) -> int:
        if handle != context.handle or not left:
            return int(compute(handle, batch))
        if before:
            before.pop()
            return int(compute(handle, batch))
        left.pop()
        rows = batch.n_tokens
        if status == 2 and rows > 1:
            batch.n_tokens = rows // 2
            compute(handle, batch)
            batch.n_tokens = rows
        return status

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llama_cpp, "llama_decode", run)
        yield left


def _spoil(handle: Any, batch: Any) -> None:
    """Nothing is right after such a decode: neither the cache nor what it gives."""
    if memory := llama_cpp.llama_get_memory(handle):
        llama_cpp.llama_memory_clear(memory, True)
    vocab = llama_cpp.llama_model_get_vocab(llama_cpp.llama_get_model(handle))
    shape = (llama_cpp.llama_vocab_n_tokens(vocab),)
    for row in range(batch.n_tokens):
        if batch.logits[row] and (logits := llama_cpp.llama_get_logits_ith(handle, row)):
            np.ctypeslib.as_array(logits, shape).fill(0)
