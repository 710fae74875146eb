"""Extra buffer types: where llama.cpp keeps weights that it rearranges for faster kernels.

Those of AMX and all repacked ones belong to them. GCC before 13 miscompiles the AMX kernels, and
the first pass ends the process. So each build is tried once on each processor
(`loading.load_check`), and where that crashes, every model is loaded without these types.
"""

from pathlib import Path
from typing import Any

from localspec.llama import library
from localspec.utils.paths import cache_file
from localspec.utils.processor import processor_signature
from localspec.utils.stored_json import stored, try_to_store

# Measured on a processor without AMX; docs/models.md has the table.
_COST = "Q4_0 takes about 1.5 x as long, and prompts lose what AMX would gain"
# Whether this build works with them here, and whether a user was told that it does not.
_WORKS, _TOLD = "works", "told"
# What is known by the name of its file, for where the cache cannot be written.
_results: dict[str, dict[str, bool]] = {}


def usable() -> bool:
    """Return whether models are to be loaded with extra buffer types: unless they crashed here."""
    return remembered() is not False


def remembered() -> bool | None:
    """Return whether this build works with them on this processor; None if it was never tried."""
    known = _known()
    return known[_WORKS] if known else None


def remember(*, works: bool, told: bool = False) -> None:
    """Keep the result of a try for this process and later ones. told: whether a user knows it."""
    file = _file()
    _results[file.name] = {_WORKS: works, _TOLD: told}
    try_to_store(file, _results[file.name])


def _known() -> dict[str, bool] | None:
    file = _file()
    return _results.get(file.name) or stored(file, _checked)


def _checked(record: Any) -> dict[str, bool]:
    known = {_WORKS: record[_WORKS], _TOLD: record.get(_TOLD, False)}
    if not all(isinstance(each, bool) for each in known.values()):
        raise TypeError("not a result")
    return known


def cost() -> str | None:
    """Return what models lose here without them; None if they are usable."""
    return None if usable() else _COST


def notes() -> tuple[str, ...]:
    """Return `warnings()`, but only once: each later load would say it again."""
    known = _known()
    if known is None or known[_WORKS] or known[_TOLD]:
        return ()
    remember(works=False, told=True)
    return warnings()


def warnings() -> tuple[str, ...]:
    """Return a line with the cost of doing without them and the remedy; none if usable."""
    if not (lost := cost()):
        return ()
    return (
        "this build of llama.cpp crashes with weights rearranged for faster kernels (AMX, "
        f"repacked), so models are loaded without: {lost}; localspec doctor says how to build it "
        "anew",
    )


def _file() -> Path:
    return cache_file("extra_buffers", [*library.build_signature(), *processor_signature()])
