"""Smoke test: load a model and decode three tokens, which may end the process.

`run_smoke_test` does it in a child process, `main` is that process's program. Its standard output
says how far it came; its exit code and standard error say how it ended.
"""

import ctypes
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from localspec.errors import ModelLoadError
from localspec.llama import library
from localspec.llama.rollback import SNAPSHOTS
from localspec.utils.child_process import BEGUN, ChildExit, ChildProcess, exit_code_of

_EXTRA_BUFFERS = "extra-buffers"
_THREADS = 4
_CONTEXT = 64
_TEXT = b"A first decode: 1 + 1 = 2.\n"


def run_smoke_test(
    path: Path, *, extra_buffers: bool, seconds: float, action: str | None = None
) -> ChildExit:
    """Smoke-test a model file in a child process; the exit code is 0 for a model that decodes.

    extra_buffers: as in `smoke_test`. seconds: the time limit. action: reported as progress.
    Raises OSError where no process can be started.
    """
    options = [_EXTRA_BUFFERS] if extra_buffers else []
    with ChildProcess(__name__, str(path), *options) as child:
        return child.wait(seconds=seconds, action=action)


def smoke_test(path: Path, *, extra_buffers: bool = False) -> None:
    """Load, read the vocabulary, decode two tokens and then one, on the CPU. Frees everything.

    extra_buffers: whether weights are copied to the library's extra buffer types, as `Model` does,
    or stay in the pages of the file, which costs neither time nor memory.

    Raises ModelLoadError with what the library refused, without the file's name.
    """
    model = _loaded(path, extra_buffers)
    try:
        tokens = _read_vocabulary(model)
        # The library computes otherwise where it makes snapshots, if it can.
        if _decodes(model, tokens, SNAPSHOTS):
            _decodes(model, tokens, 0)
    finally:
        llama_cpp.llama_model_free(model)


def _loaded(path: Path, extra_buffers: bool) -> Any:
    params = llama_cpp.llama_model_default_params()
    no_devices = (ctypes.c_void_p * 1)(None)
    params.devices = ctypes.cast(no_devices, ctypes.c_void_p)
    params.n_gpu_layers = 0
    params.load_mode = llama_cpp.LLAMA_LOAD_MODE_MMAP
    params.use_extra_bufts = extra_buffers
    library.clear_log()
    model = llama_cpp.llama_model_load_from_file(bytes(path), params)
    if not model:
        raise _refused("cannot be loaded")
    return model


def _read_vocabulary(model: Any) -> list[int]:
    """Read all tokens; return the three of a text's beginning."""
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    tokens = (ctypes.c_int32 * 64)()
    count = llama_cpp.llama_tokenize(vocabulary, _TEXT, len(_TEXT), tokens, len(tokens), True, True)
    piece = ctypes.create_string_buffer(64)
    for token in range(llama_cpp.llama_vocab_n_tokens(vocabulary)):
        llama_cpp.llama_token_to_piece(vocabulary, token, piece, len(piece), 0, True)
    return tokens[:3] if count >= 3 else [0, 0, 0]


def _decodes(model: Any, tokens: Sequence[int], snapshots: int) -> bool:
    """Decode three tokens in a new context; return whether the library made snapshots in it."""
    context = _context(model, snapshots)
    try:
        for part in (tokens[:2], tokens[2:]):
            _decode(context, part)
            _require_numbers(model, context)
        return bool(llama_cpp.llama_n_rs_seq(context))
    finally:
        llama_cpp.llama_free(context)


def _context(model: Any, snapshots: int) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_rs_seq = snapshots
    params.n_ctx = params.n_batch = params.n_ubatch = _CONTEXT
    params.n_threads = params.n_threads_batch = min(_THREADS, os.cpu_count() or 1)
    params.offload_kqv = params.op_offload = False
    library.clear_log()
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise _refused("gets no context")
    return context


def _decode(context: Any, part: Sequence[int]) -> None:
    tokens = (ctypes.c_int32 * len(part))(*part)
    status = llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, len(part)))
    if status:
        raise _refused(f"cannot be decoded (status {status})")


def _require_numbers(model: Any, context: Any) -> None:
    """Refuse logits from which no token can be drawn, as NaN in the weights computes them."""
    logits = llama_cpp.llama_get_logits(context)
    size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    row = np.ctypeslib.as_array(logits, shape=(size,))
    top = float(row.max())  # NaN if any of them is
    if not math.isfinite(top):
        raise ModelLoadError(
            f"computes logits that are no numbers ({top}): its weights are damaged"
        )


def _refused(what: str) -> ModelLoadError:
    return ModelLoadError(f"{what}: {library.first_error() or 'no reason given'}")


def main(path: str, *options: str) -> int:
    """Smoke-test the model at `path`; return the exit code."""
    os.write(1, BEGUN.encode())
    return exit_code_of(lambda: smoke_test(Path(path), extra_buffers=_EXTRA_BUFFERS in options))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
