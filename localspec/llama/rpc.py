"""RPC: llama.cpp's backend that computes on other machines.

The backend is a part of the library (`GGML_RPC`), or a library of its own beside it (`rpc_build`).
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from localspec.errors import ModelLoadError
from localspec.llama import library, rpc_build
from localspec.llama.devices import gpu_pointers, processor_pointers
from localspec.workers.address import Address


def is_available() -> bool:
    """Whether this installation can use workers, and be one."""
    return _function("ggml_backend_rpc_start_server", None) is not None


def require_available() -> None:
    """Raise ModelLoadError, with the command that helps, if this installation lacks RPC."""
    if not is_available():
        raise ModelLoadError(
            "this build of llama.cpp has no RPC, which other machines need; compile it once, in "
            "seconds: localspec worker --build"
        )


def serve(
    address: Address, threads: int, cache_folder: str | None, gpus: Sequence[str] = ()
) -> None:
    """Serve GPUs of this machine, or its processor where none is named, until the process ends.

    Returns if the address cannot be used. cache_folder: where large tensors are kept; None keeps
    none. gpus: their names.
    """
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    start = required_function(
        "ggml_backend_rpc_start_server", None, text, text, size, size, pointer
    )
    pointers = gpu_pointers() if gpus else {}
    devices = [pointers[name] for name in gpus] or processor_pointers()
    kept = cache_folder.encode() if cache_folder else None
    start(str(address).encode(), kept, threads, len(devices), (pointer * len(devices))(*devices))


def required_function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Return a function of the library. Raises ModelLoadError where it has none."""
    found: Callable[..., Any] | None = _function(name, result, *arguments)
    if found is None:
        raise ModelLoadError(
            f"this build of llama.cpp cannot use other machines: it lacks {name}; install "
            "llama-cpp-python 0.3.36"
        )
    return found


def _function(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of the library, or of the one that was compiled beside it; None if none."""
    if found := library.symbol(name, result, *arguments):
        return found
    if built := _built():
        return ctypes.CFUNCTYPE(result, *arguments)((name, built))
    return None


@cache
def _load(file: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(file)
    except OSError:
        return None


def _built() -> ctypes.CDLL | None:
    file = rpc_build.built_file()
    return _load(str(file)) if file.is_file() else None
