"""llama.cpp through llama-cpp-python: loaded once, its log captured, its abilities asked for."""

import ctypes
import os
import threading
from collections import deque
from typing import Any

from localspec.errors import ModelLoadError

# A failed assertion in the library otherwise starts a debugger to print a backtrace.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

try:
    import llama_cpp
except (ImportError, OSError, RuntimeError, FileNotFoundError) as error:
    raise ModelLoadError(
        f"llama-cpp-python cannot be loaded ({error}); reinstall it: "
        "pip install --force-reinstall --no-cache-dir llama-cpp-python"
    ) from error

_ERROR_LEVEL = 4
_lines: deque[str] = deque(maxlen=400)
_interrupted = threading.Event()


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _capture(level: int, text: bytes, _data: Any) -> None:
    try:
        line = text.decode("utf-8", "replace")
        _lines.append(line)
        if os.environ.get("LOCALSPEC_DEBUG") == "1":
            os.write(2, line.encode())
    except KeyboardInterrupt:
        # ctypes prints and forgets what a callback raises: keep it for `raise_interrupt`.
        _interrupted.set()


# The library keeps the pointer: `_capture` is a module global so that it lives as long.
llama_cpp.llama_log_set(_capture, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()


def complaint() -> str:
    """The first line since `forget_log` that names an error, or nothing."""
    lines = [line.strip() for line in "".join(_lines).splitlines() if line.strip()]
    complaints = [line for line in lines if "error" in line.lower() or "fail" in line.lower()]
    return (complaints or [""])[0]


def raise_interrupt() -> None:
    """Raise the KeyboardInterrupt that came while the library was logging, if one did."""
    if _interrupted.is_set():
        _interrupted.clear()
        raise KeyboardInterrupt


def forget_interrupt() -> None:
    """An interrupt that came before is over."""
    _interrupted.clear()


def forget_log() -> None:
    """Start a new log, so that a complaint is about what follows."""
    _lines.clear()


def can_offload() -> bool:
    """Whether this build can put layers on a GPU."""
    return bool(llama_cpp.llama_supports_gpu_offload())


def version() -> str:
    """The version of llama-cpp-python."""
    return str(llama_cpp.__version__)
