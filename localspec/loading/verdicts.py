"""Verdicts: whether model files would end the process, found out once and remembered."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from localspec.errors import ModelLoadError, OutOfMemoryError
from localspec.llama import library
from localspec.utils.child_process import ChildExit
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.processor import processor_signature
from localspec.utils.stored_json import stored, try_to_store


def remembered_verdict(
    folder: str, key: str, files: Sequence[Path], find_out: Callable[[], str]
) -> str:
    """Return what is wrong with these files, an empty text if nothing is.

    It is remembered as long as the files, the library and the processor stay the same. folder: of
    the cache. key: of the JSON. find_out: called if nothing is remembered; what it raises is not
    remembered.
    """

    def parse(record: Any) -> str:
        if not isinstance(record[key], str):
            raise ValueError("not a verdict")
        return str(record[key])

    machine = [*library.build_signature(), *processor_signature()]
    file = cache_file(folder, [*map(stat_signature, files), *machine])
    verdict = stored(file, parse)
    if verdict is None:
        verdict = find_out()
        try_to_store(file, {key: verdict})
    return verdict


def not_started(what: str, error: OSError) -> ModelLoadError:
    """Return the error of a trial that no process could be started for. what: was to be tried."""
    return ModelLoadError(
        f"{what} cannot be tried out: {error.strerror or error}; no process could be started for it"
    )


def require_memory(ended: ChildExit, what: str) -> None:
    """Raise OutOfMemoryError if a trial lacked memory: it tells nothing. what: was tried out."""
    if ended.lacked_memory:
        raise OutOfMemoryError(
            f"{what} cannot be tried out ({ended.reason}); close what else uses memory"
        )
