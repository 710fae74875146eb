"""OpenMP: the library in whose threads the processor's passes are computed."""

import ctypes
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

import llama_cpp

_MAPS = Path("/proc/self/maps")
_OTHERS = "libomp.so", "libomp.dylib", "libiomp5.so"
_SOFT = 1


@cache
def gnu_library() -> ctypes.CDLL | None:
    """The GNU OpenMP that llama.cpp uses in this process; None for another one, or none.

    Other packages bring their own; llama.cpp's is beside it, or that of the system.
    """
    paths = {
        os.fsdecode(line.split(maxsplit=5)[5]) for line in _mapped_files() if b"/libgomp" in line
    }
    # In the package, or in the folder of libraries beside it, whose name begins like it.
    own = [each for each in paths if each.startswith(str(Path(llama_cpp.__file__).parent))]
    of_system = [each for each in paths if "-packages" not in each]
    for path in sorted(own or of_system):
        with suppress(OSError):
            return ctypes.CDLL(path)
    return None


def give_up_team() -> None:
    """End the worker threads of the calling thread, where OpenMP 5 is what the library uses."""
    if library := gnu_library():
        with suppress(AttributeError):
            library.omp_pause_resource_all(_SOFT)
        return
    for name in _OTHERS:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(name).omp_pause_resource_all(_SOFT)
            return


def _mapped_files() -> list[bytes]:
    with suppress(OSError):
        return _MAPS.read_bytes().splitlines()
    return []
