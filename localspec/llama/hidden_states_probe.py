"""Hidden states probe: whether a target hands out hidden rows, which may end the process.

`run_hidden_states_probe` finds it out in a child process, `main` is that process's program. No
weights are read: the library only plans the passes of the target, and of a head if there is one.
"""

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp

from localspec.errors import ModelLoadError
from localspec.llama import library
from localspec.llama.hidden_states import HiddenStates
from localspec.utils.child_process import ChildExit, ChildProcess, exit_code_of

# Written when the target is there: what ends the process later is about hidden states.
BEGUN = "begun"
# Written when the target hands out its rows: what ends the process later is about the head.
TARGET_DONE = "target"
_CONTEXT, _ROWS = 64, 8
_MTP = "mtp"


def run_hidden_states_probe(
    target: Path,
    head: Path | None,
    layers: Sequence[int],
    *,
    block: int = 1,
    mtp: bool = False,
    seconds: float,
    action: str | None = None,
) -> ChildExit:
    """Probe in a child process; the exit code is 0 if the head can read the target's layers.

    head: None where the target's rows alone are in question. block: the rows of a draft's pass.
    mtp: whether the file has heads of multi-token prediction. seconds: the time limit. action:
    reported as progress. Raises OSError where no process can be started.
    """
    arguments = [str(target), str(head or ""), str(block), _MTP if mtp else "", *map(str, layers)]
    with ChildProcess(__name__, *arguments) as child:
        return child.wait(seconds=seconds, action=action)


def probe(
    target: Path, head: Path | None, block: int, layers: Sequence[int], *, mtp: bool = False
) -> None:
    """Plan a pass of the target with hidden rows, and the passes of the head if there is one.

    block: the rows of a draft's pass. Raises ModelLoadError with what the library refused.
    """
    with _model(target) as target_model, _context(target_model, target) as context:
        os.write(1, BEGUN.encode())
        HiddenStates(context).enable(layers)
        reserve = library.symbol("llama_graph_reserve", ctypes.c_void_p, *_RESERVE)
        if reserve is None:
            raise ModelLoadError("this build of llama.cpp cannot plan a pass: reinstall it")
        reserve(context, _ROWS, 1, 1)
        os.write(1, TARGET_DONE.encode())
        if head is None:
            return
        with (
            _model(head, mtp=mtp) as head_model,
            _context(head_model, head, other=context, mtp=mtp) as own,
        ):
            HiddenStates(own).enable([int(llama_cpp.llama_model_n_layer(head_model))])
            # A pass of as many rows as a block, whose graph is another one than that of a prompt.
            reserve(own, block, 1, block)


_RESERVE = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)


@contextmanager
def _model(path: Path, *, mtp: bool = False) -> Iterator[Any]:
    """Load a model without its weights, on the CPU."""
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    params.no_alloc = True
    params.load_mtp = mtp
    params.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
    library.clear_log()
    model = llama_cpp.llama_model_load_from_file(bytes(path), params)
    if not model:
        raise ModelLoadError(f"{path.name} cannot be loaded: {library.first_error()}")
    try:
        yield model
    finally:
        llama_cpp.llama_model_free(model)


@contextmanager
def _context(model: Any, path: Path, other: Any = None, *, mtp: bool = False) -> Iterator[Any]:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = params.n_outputs_max = _CONTEXT
    params.ctx_other = other
    if mtp:
        params.ctx_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
    library.clear_log()
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise ModelLoadError(f"{path.name} gets no context: {library.first_error()}")
    try:
        yield context
    finally:
        llama_cpp.llama_free(context)


def main(target: str, head: str, block: str, kind: str, *layers: str) -> int:
    """Probe the two models; return the exit code."""
    own, read = Path(head) if head else None, list(map(int, layers))
    return exit_code_of(lambda: probe(Path(target), own, int(block), read, mtp=kind == _MTP))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
