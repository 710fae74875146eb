"""Copied texts: files whose text drafts may copy from."""

from collections.abc import Iterable
from pathlib import Path

from localspec.utils.text_file import read_text_file

# More could not have few enough tokens.
_MOST_BYTES = 8 << 20


def read_texts(
    files: str | Path | Iterable[str | Path], option: str = "copy_from"
) -> tuple[str, ...]:
    """The texts of files, with line breaks as models write them. option: what the files are of.

    Raises InvalidValueError for a file that cannot be read, is too large, or is no text.
    """
    files = [files] if isinstance(files, str | Path) else files
    return tuple(
        read_text_file(
            option,
            Path(file),
            "name a text file",
            most=_MOST_BYTES,
            if_larger="name a shorter text file",
        )
        for file in files
    )
