"""llama.cpp's own quantiser, for the types that localspec does not write itself."""

from pathlib import Path

import llama_cpp

from localspec.errors import InvalidValueError, LocalspecError
from localspec.llama import library
from localspec.llama.compute_thread import shielded

_PREFIX = "LLAMA_FTYPE_MOSTLY_"


def types() -> list[str]:
    """Return the types that the quantiser can write, such as Q4_K_M."""
    return [name.removeprefix(_PREFIX) for name in dir(llama_cpp) if name.startswith(_PREFIX)]


def quantize(source: Path, target: Path, type_name: str, *, threads: int = 0) -> None:
    """Write the model `source` (F32 or F16) to `target` in another type.

    threads: 0 means one per processor. A KeyboardInterrupt is raised when the quantiser has
    finished. Raises InvalidValueError for an unknown type, and LocalspecError when it fails.
    """
    if type_name not in types():
        raise InvalidValueError(f"there is no type {type_name!r}; try one of {', '.join(types())}")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, _PREFIX + type_name)
    params.nthread = threads
    library.clear_log()
    paths = bytes(source), bytes(target)
    status = shielded(lambda: llama_cpp.llama_model_quantize(*paths, params))
    if status:
        raise LocalspecError(
            f"{source.name} cannot be written as {type_name} "
            f"({library.first_error() or f'status {status}'}); try Q4_0 or Q8_0"
        )
