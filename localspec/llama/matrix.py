"""Matrix: a matrix of a GGUF that multiplies vectors, by ggml's own kernels.

Heads that are a few matrices need no context: the library multiplies the weights where they lie in
the mapped file, quantised as they are, by a graph of one node that is made once. numpy would need
them as 32-bit floats, which take four times the memory of Q8_0; its 16-bit floats are slow.
"""

import ctypes
import threading
from functools import cache
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError, ModelLoadError
from localspec.llama import compute_thread, library

_POINTER, _SIZE, _LENGTH, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int


class _InitParams(ctypes.Structure):
    """`struct ggml_init_params`."""

    _fields_ = (("mem_size", _SIZE), ("mem_buffer", _POINTER), ("no_alloc", ctypes.c_bool))


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ggml_init": (_POINTER, _InitParams),
    "ggml_free": (None, _POINTER),
    "ggml_new_tensor_2d": (_POINTER, _POINTER, _INT, _LENGTH, _LENGTH),
    "ggml_nbytes": (_SIZE, _POINTER),
    "ggml_mul_mat": (_POINTER, _POINTER, _POINTER, _POINTER),
    "ggml_new_graph_custom": (_POINTER, _POINTER, _SIZE, ctypes.c_bool),
    "ggml_build_forward_expand": (None, _POINTER, _POINTER),
    "ggml_backend_init_by_type": (_POINTER, _INT, ctypes.c_char_p),
    "ggml_backend_cpu_set_n_threads": (None, _POINTER, _INT),
    "ggml_backend_cpu_buffer_from_ptr": (_POINTER, _POINTER, _SIZE),
    "ggml_backend_buffer_free": (None, _POINTER),
    "ggml_backend_tensor_alloc": (_INT, _POINTER, _POINTER, _POINTER),
    "ggml_backend_supports_op": (ctypes.c_bool, _POINTER, _POINTER),
    "ggml_backend_graph_compute": (_INT, _POINTER, _POINTER),
}
_CPU, _FLOAT32 = 0, 0
# What the library needs for three tensors and a graph of one node.
_CONTEXT_BYTES, _GRAPH_NODES = 1 << 16, 8
# Where tensors must begin, in bytes.
ALIGNMENT = 32
# One product at a time: they share the library's buffers, and the cores.
_lock = threading.Lock()


class Matrix:
    """A (rows, columns) matrix in memory that it does not copy.

    data: the encoded rows, beginning at a multiple of ALIGNMENT. type_: a ggml type. threads: of
    the CPU, for the next products. Raises ModelLoadError where the library cannot multiply this
    type, and LocalspecError for data of another size.
    """

    def __init__(
        self, data: NDArray[np.uint8], type_: int, *, rows: int, columns: int, threads: int
    ) -> None:
        if data.ctypes.data % ALIGNMENT:
            raise LocalspecError(
                f"a matrix begins at byte {data.ctypes.data}, between {ALIGNMENT}s"
            )
        self.rows = rows
        self.threads = threads
        # The library keeps pointers to these.
        self._data = data
        self._input, self._output = _floats(columns), _floats(rows)
        handle = _call("ggml_init", _InitParams(_CONTEXT_BYTES, None, True))
        finalize(self, _call, "ggml_free", handle)
        tensors = [
            _call("ggml_new_tensor_2d", handle, type_, columns, rows),
            _call("ggml_new_tensor_2d", handle, _FLOAT32, columns, 1),
        ]
        tensors.append(_call("ggml_mul_mat", handle, *tensors))
        if not _call("ggml_backend_supports_op", _backend(), tensors[-1]):
            raise ModelLoadError(
                f"this build of llama.cpp cannot multiply by a matrix of type {type_}"
            )
        if (needed := _call("ggml_nbytes", tensors[0])) != data.nbytes:
            # The library would end the process.
            raise LocalspecError(f"a matrix has {data.nbytes} bytes, and {needed} are needed")
        memories: list[NDArray[Any]] = [data, self._input, self._output]
        for tensor, memory in zip(tensors, memories, strict=True):
            self._place(tensor, memory)
        self._graph = _call("ggml_new_graph_custom", handle, _GRAPH_NODES, False)
        _call("ggml_build_forward_expand", self._graph, tensors[-1])

    def times(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The product with a (columns,) vector: (rows,) float32, a new array."""
        return compute_thread.run(lambda: self._product(vector))

    def _product(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        with _lock:
            self._input[:] = vector
            _call("ggml_backend_cpu_set_n_threads", _backend(), self.threads)
            status = _call("ggml_backend_graph_compute", _backend(), self._graph)
            if status != 0:
                raise LocalspecError(f"llama.cpp could not multiply a matrix (status {status})")
            return self._output.copy()

    def _place(self, tensor: int, memory: NDArray[Any]) -> None:
        address = memory.ctypes.data
        buffer = _call("ggml_backend_cpu_buffer_from_ptr", address, memory.nbytes)
        finalize(self, _call, "ggml_backend_buffer_free", buffer)
        _call("ggml_backend_tensor_alloc", buffer, tensor, address)


def require_functions() -> None:
    """Raise ModelLoadError where this build of llama.cpp cannot multiply single matrices."""
    for name in _SIGNATURES:
        _function(name)


def _floats(count: int) -> NDArray[np.float32]:
    """Zeros that begin at a multiple of ALIGNMENT."""
    memory = np.zeros(count * 4 + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + count * 4].view(np.float32)


@cache
def _backend() -> int:
    """The library's CPU, for the whole life of the process."""
    backend: int | None = _call("ggml_backend_init_by_type", _CPU, None)
    if not backend:
        raise ModelLoadError("this build of llama.cpp has no CPU backend: reinstall it")
    return backend


def _call(name: str, *arguments: Any) -> Any:
    return _function(name)(*arguments)


@cache
def _function(name: str) -> Any:
    return library.required_symbol(name, "cannot multiply single matrices", *_SIGNATURES[name])
