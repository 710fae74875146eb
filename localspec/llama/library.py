"""llama.cpp through llama-cpp-python: loaded once, its log captured, its build identified."""

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from localspec.errors import ModelLoadError
from localspec.llama import abort
from localspec.utils.format import printable
from localspec.utils.installer import installer
from localspec.utils.option_names import options
from localspec.utils.paths import stat_signature

# A failed assertion in the library otherwise starts a debugger to print a backtrace.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

try:
    import llama_cpp
except (ImportError, OSError, RuntimeError, FileNotFoundError) as error:
    raise ModelLoadError(
        f"llama-cpp-python cannot be loaded ({error}); reinstall it: "
        f"{installer()} --force-reinstall --no-cache-dir llama-cpp-python"
    ) from error

OTHER_MACHINES = "layers on other machines (RPC)"
# Functions that some builds lack, by what they are needed for.
_OPTIONAL_FUNCTIONS = {
    "drafters that read hidden states": (
        "llama_set_embeddings_layer_inp",
        "llama_get_embeddings_layer_inp",
        "llama_set_embeddings_nextn",
        "llama_get_embeddings_nextn",
        "llama_set_nextn_layer_offset",
    ),
    OTHER_MACHINES: (
        "ggml_backend_rpc_add_server",
        "ggml_backend_rpc_start_server",
    ),
}
# Functions that are exported as C++: their parameters as gcc and clang write them into the name,
# and their result and parameters as Microsoft's compiler does.
_CPP_FUNCTIONS = {
    "llama_set_embeddings_layer_inp": ("P13llama_contextjb", "XPEAUllama_context@@I_N@Z"),
    "llama_get_embeddings_layer_inp": ("P13llama_contextj", "PEAMPEAUllama_context@@I@Z"),
    "llama_set_embeddings_nextn": ("P13llama_contextbb", "XPEAUllama_context@@_N1@Z"),
    "llama_get_embeddings_nextn": ("P13llama_context", "PEAMPEAUllama_context@@@Z"),
    "llama_set_nextn_layer_offset": ("P13llama_contexti", "XPEAUllama_context@@H@Z"),
    "llama_graph_reserve": ("P13llama_contextjjj", "PEAUggml_cgraph@@PEAUllama_context@@III@Z"),
}
_GPU_BACKENDS = {"cann", "cuda", "hip", "metal", "musa", "opencl", "sycl", "vulkan"}
_LONGEST_LINE = 200
# `GGML_LOG_LEVEL_ERROR`, and the value of LOCALSPEC_DEBUG that shows only lines of this level.
_ERROR, ERRORS = 4, "errors"
_lines: deque[str] = deque(maxlen=400)
_captured: list[list[str]] = []
_told: list[Callable[[str], None]] = []
# What Metal logs of commands that failed after the library has returned; it tells nobody else.
_FAILED_LATER = "command buffer"
_failed_later = threading.local()


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _capture(level: int, text: bytes, _data: Any) -> None:
    line = text.decode("utf-8", "replace")
    if level == _ERROR and _FAILED_LATER in line:
        _failed_later.count = failed_later() + 1
    for lines in (_lines, *_captured):
        lines.append(line)
    if level == _ERROR:
        for tell in _told:
            tell(line)
    shown = os.environ.get("LOCALSPEC_DEBUG")
    if shown == "1" or (shown == ERRORS and level == _ERROR):
        os.write(2, line.encode())


# The library keeps the pointer: `_capture` is a module global so that it lives as long.
llama_cpp.llama_log_set(_capture, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()


def capture(set_callback: Callable[[Any, Any], None]) -> None:
    """Let another part of the library log here, too. set_callback: sets the function it calls."""
    set_callback(_capture, ctypes.c_void_p(0))


def tell_errors(tell: Callable[[str], None]) -> None:
    """Call `tell` with each line that is logged as an error from now on, in whatever thread."""
    _told.append(tell)


def clear_log() -> None:
    """Start a new log, so that `first_error` is about what follows."""
    _lines.clear()


def failed_later() -> int:
    """Return how many commands that this thread gave to GPUs have failed without a word to it."""
    return int(getattr(_failed_later, "count", 0))


def logged() -> str:
    """Return what the library has logged since `clear_log`, as far as it is kept."""
    return "".join(_lines)


def first_error() -> str:
    """Return the first line since `clear_log` that names an error; empty if none does."""
    lines = [line.strip() for line in logged().splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "fail" in line.lower()]
    # It may quote the model file.
    line = (errors or [""])[0][:_LONGEST_LINE]
    return printable(line)


@contextmanager
def captured_log() -> Iterator[list[str]]:
    """Collect what the library logs inside the block, line by line."""
    lines: list[str] = []
    _captured.append(lines)
    try:
        yield lines
    finally:
        _captured[:] = [each for each in _captured if each is not lines]


def version() -> str:
    """Return the version of llama-cpp-python."""
    return str(llama_cpp.__version__)


def sources() -> tuple[str, str]:
    """Return the version and the commit of the llama.cpp in the library; "" for what it hides."""
    version_, commit = (_text_of(name) for name in ("llama_version", "ggml_commit"))
    return version_, commit.removesuffix("-dirty")


def build_signature() -> list[str | int]:
    """Return the version and the library's files: they change when it is compiled anew.

    Part of the keys under which costs and results of checks are kept.
    """
    return [version(), *(part for file in _files() for part in stat_signature(file))]


def gpu_backends() -> list[str]:
    """Return the GPU backends that this build was compiled with, such as vulkan.

    Those whose driver is missing, too: the library itself keeps silent about them.
    """
    names = (file.name.removeprefix("lib").partition(".")[0] for file in _files())
    backends = {name.removeprefix("ggml-") for name in names if name.startswith("ggml-")}
    return sorted(backends & _GPU_BACKENDS)


def _files() -> list[Path]:
    """The files of the library."""
    bound = Path(getattr(_bound_library(), "_name", None) or "")
    return sorted(bound.parent.glob(f"*{bound.suffix}")) if bound.is_file() else []


def missing_functions() -> dict[str, list[str]]:
    """Return the functions that this build lacks, by what they would be needed for."""
    lacking = {
        use: [name for name in names if symbol(name, None) is None]
        for use, names in _OPTIONAL_FUNCTIONS.items()
    }
    return {use: names for use, names in lacking.items() if names}


def symbol(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function that llama-cpp-python does not bind; None where the library has none.

    result, arguments: their ctypes.
    """
    for library in _libraries():
        for exported in _exported_names(name):
            with suppress(AttributeError):
                return ctypes.CFUNCTYPE(result, *arguments)((exported, library))
    return None


def required_symbol(name: str, lacking: str, result: Any, *arguments: Any) -> Any:
    """Return a function as `symbol` does. lacking: what a build without it cannot do.

    Raises ModelLoadError where the library has none.
    """
    found = symbol(name, result, *arguments)
    if found is None:
        raise ModelLoadError(
            f"this build of llama.cpp ({version()}) {lacking}: it lacks {name}; install "
            f"llama-cpp-python 0.3.36, or use {options(draft='suffix')}"
        )
    return found


def _text_of(name: str) -> str:
    """What a function without parameters returns; "" where the library lacks it."""
    function = symbol(name, ctypes.c_char_p)
    return (function() or b"").decode("utf-8", "replace") if function else ""


def _exported_names(name: str) -> Iterator[str]:
    """Yield the names that a function may be exported by: as C, by gcc and clang, by Microsoft."""
    yield name
    if name in _CPP_FUNCTIONS:
        parameters, signature = _CPP_FUNCTIONS[name]
        yield f"_Z{len(name)}{name}{parameters}"
        yield f"?{name}@@YA{signature}"


@cache
def _libraries() -> list[ctypes.CDLL]:
    """Return where functions are looked up: libllama and, with it, all that it is linked to.

    Windows looks into one library at a time.
    """
    found = [_bound_library()]
    for path in (Path(llama_cpp.__file__).parent / "lib").glob("ggml*.dll"):
        try:
            found.append(ctypes.CDLL(str(path)))
        except OSError:
            continue
    return [library for library in found if library is not None]


def _bound_library() -> ctypes.CDLL | None:
    return getattr(llama_cpp.llama_cpp, "_lib", None)


tell_errors(abort.note_error)
abort.install(symbol)
