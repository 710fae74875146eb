"""llama.cpp through llama-cpp-python: loaded once, its log captured, its abilities asked for."""

import ctypes
import os
import threading
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from localspec.errors import ModelLoadError
from localspec.utils.format import printable
from localspec.utils.paths import stat_signature

# A failed assertion in the library otherwise starts a debugger to print a backtrace.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

try:
    import llama_cpp
except (ImportError, OSError, RuntimeError, FileNotFoundError) as error:
    raise ModelLoadError(
        f"llama-cpp-python cannot be loaded ({error}); reinstall it: "
        "pip install --force-reinstall --no-cache-dir llama-cpp-python"
    ) from error

_DEVICE_KINDS = ("cpu", "gpu", "integrated gpu", "accelerator")
# What is not in every build, by what it is good for; C++ names are spelt as gcc and clang do.
_USES = {
    "rolling recurrent models back": (
        "llama_n_rs_seq",
        "llama_state_seq_get_size_ext",
        "llama_state_seq_get_data_ext",
        "llama_state_seq_set_data_ext",
    ),
    "one pool of threads for both models": (
        "llama_attach_threadpool",
        "llama_detach_threadpool",
    ),
    "drafters that read hidden states": (
        "llama_set_embeddings",
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
        "_Z28llama_model_target_layer_idsPK11llama_model",
        "_Z30llama_model_target_layer_ids_nPK11llama_model",
    ),
    "layers on other machines (RPC)": (
        "ggml_backend_rpc_add_server",
        "ggml_backend_rpc_start_server",
    ),
}
_LONGEST_LINE = 200
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
    """The first line since `forget_log` that names an error, or nothing; fit to be shown."""
    lines = [line.strip() for line in "".join(_lines).splitlines() if line.strip()]
    complaints = [line for line in lines if "error" in line.lower() or "fail" in line.lower()]
    # It may quote the model file.
    line = (complaints or [""])[0][:_LONGEST_LINE]
    return printable(line)


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


def build() -> list[str | int]:
    """What changes when the library is compiled anew."""
    path = getattr(getattr(llama_cpp.llama_cpp, "_lib", None), "_name", None)
    return [version(), *(stat_signature(Path(path)) if path and Path(path).is_file() else [])]


def cpu_features() -> frozenset[str]:
    """What of the processor this build makes use of, as llama.cpp calls it (AVX2, NEON, ...)."""
    found, backend = set(), ""
    # One line: `CUDA : ARCHS = 890 | CPU : SSE3 = 1 | AVX2 = 1 | `
    for item in llama_cpp.llama_print_system_info().decode("utf-8", "replace").split("|"):
        named, _, setting = item.rpartition(" : ")
        backend = named.strip() or backend
        name, _, value = setting.partition("=")
        if backend == "CPU" and value.strip() == "1":
            found.add(name.strip())
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Device:
    """Something that can compute. kind: cpu, gpu, integrated gpu, accelerator. Memory in bytes."""

    name: str
    description: str
    kind: str
    free: int
    total: int


def devices() -> list[Device]:
    """What this build finds to compute on; nothing where it cannot be asked."""
    size, pointer, text = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
    count = symbol("ggml_backend_dev_count", size)
    get = symbol("ggml_backend_dev_get", pointer, size)
    name = symbol("ggml_backend_dev_name", text, pointer)
    description = symbol("ggml_backend_dev_description", text, pointer)
    kind = symbol("ggml_backend_dev_type", ctypes.c_int, pointer)
    memory = symbol("ggml_backend_dev_memory", None, pointer, pointer, pointer)
    if not (count and get and name and description and kind and memory):
        return []
    found = []
    for device in map(get, range(count())):
        free, total, number = size(), size(), kind(device)
        memory(device, ctypes.byref(free), ctypes.byref(total))
        found.append(
            Device(
                (name(device) or b"").decode("utf-8", "replace"),
                (description(device) or b"").decode("utf-8", "replace"),
                _DEVICE_KINDS[number] if number < len(_DEVICE_KINDS) else "other",
                free.value,
                total.value,
            )
        )
    return found


def missing() -> dict[str, list[str]]:
    """The functions this build lacks, by what they would be good for."""
    lacking = {
        use: [name for name in names if symbol(name, None) is None] for use, names in _USES.items()
    }
    return {use: names for use, names in lacking.items() if names}


def symbol(name: str, result: Any, *arguments: Any) -> Any:
    """A function that llama-cpp-python does not bind, with its ctypes; None where there is none."""
    for library in _libraries():
        try:
            return ctypes.CFUNCTYPE(result, *arguments)((name, library))
        except AttributeError:
            continue
    return None


@cache
def _libraries() -> list[ctypes.CDLL]:
    """Where symbols are looked up: libllama and, with it, all that it is linked to.

    Windows looks into one library at a time.
    """
    found = [getattr(llama_cpp.llama_cpp, "_lib", None)]
    for path in (Path(llama_cpp.__file__).parent / "lib").glob("ggml*.dll"):
        try:
            found.append(ctypes.CDLL(str(path)))
        except OSError:
            continue
    return [library for library in found if library is not None]
