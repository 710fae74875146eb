"""Verdicts: what is wrong with model files, found out once and remembered."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from localspec.llama import library
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.stored_json import stored, try_to_store


def remembered_verdict(
    folder: str,
    key: str,
    files: Sequence[Path],
    find_out: Callable[[], str],
    is_verdict: Callable[[str], bool] = lambda _: True,
    *,
    options: Sequence[object] = (),
) -> str:
    """Return what is wrong with these files, an empty text if nothing is.

    It is remembered as long as the files and the library stay the same. folder: of the cache. key:
    of the JSON. find_out: called if nothing is remembered; what it raises is not remembered.
    is_verdict: whether a remembered text can be one. options: of the load on which it depends.
    """
    verdict = find_verdict(folder, key, files, is_verdict, options=options)
    if verdict is None:
        verdict = find_out()
        try_to_store(_file(folder, files, options), {key: verdict})
    return verdict


def find_verdict(
    folder: str,
    key: str,
    files: Sequence[Path],
    is_verdict: Callable[[str], bool] = lambda _: True,
    *,
    options: Sequence[object] = (),
) -> str | None:
    """Return what `remembered_verdict` remembers; None where nothing was found out yet."""

    def parse(record: Any) -> str:
        if not isinstance(record[key], str) or not is_verdict(record[key]):
            raise ValueError("not a verdict")
        return str(record[key])

    return stored(_file(folder, files, options), parse)


def _file(folder: str, files: Sequence[Path], options: Sequence[object]) -> Path:
    return cache_file(folder, [*map(stat_signature, files), *library.build_signature(), *options])
