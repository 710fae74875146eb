"""Extra buffer types: where llama.cpp keeps weights that it rearranges for faster kernels.

Those of AMX and all repacked ones belong to them. GCC before 13 miscompiles the AMX kernels, and
the first pass ends the process. So each build is tried once on each processor
(`loading.load_check`), and where that crashes, every model is loaded without these types.
"""

from pathlib import Path
from typing import Any

from localspec.llama import library
from localspec.utils.paths import cache_file
from localspec.utils.processor import processor_features, processor_name
from localspec.utils.stored_json import stored, try_to_store

# Measured on a processor without AMX; docs/models.md has the table.
_COST = "Q4_0 takes about 1.5 x as long, and prompts lose what AMX would gain"
_KEY = "works"
# Results by the name of their file, for where the cache cannot be written.
_results: dict[str, bool] = {}


def usable() -> bool:
    """Return whether models are to be loaded with extra buffer types: unless they crashed here."""
    return remembered() is not False


def remembered() -> bool | None:
    """Return whether this build works with them on this processor; None if it was never tried."""
    file = _file()
    if file.name in _results:
        return _results[file.name]
    return stored(file, _works)


def remember(*, works: bool) -> None:
    """Keep the result of a try for this process and later ones."""
    file = _file()
    _results[file.name] = works
    try_to_store(file, {_KEY: works})


def _works(record: Any) -> bool:
    works = record[_KEY]
    if not isinstance(works, bool):
        raise TypeError("not a result")
    return works


def cost() -> str | None:
    """Return what models lose here without them; None if they are usable."""
    return None if usable() else _COST


def notes() -> tuple[str, ...]:
    """Return a line with the cost of doing without them and the remedy; none if usable."""
    if not (lost := cost()):
        return ()
    return (
        "this build of llama.cpp crashes with weights rearranged for faster kernels (AMX, "
        f"repacked), so models are loaded without: {lost}; localspec doctor says how to build it "
        "anew",
    )


def _file() -> Path:
    return cache_file(
        "extra_buffers",
        [*library.build_signature(), processor_name(), sorted(processor_features())],
    )
