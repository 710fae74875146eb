"""Text files that a user names: read, with one line for whatever is wrong with them."""

import errno
from pathlib import Path

from localspec.errors import InvalidValueError
from localspec.utils.bounded_file import MOST_TEXT_BYTES, read_at_most, read_regular
from localspec.utils.format import printable


def read_text_file(
    option: str,
    file: Path,
    remedy: str,
    *,
    only_regular: bool = False,
    most: int = MOST_TEXT_BYTES,
    if_larger: str | None = None,
) -> str:
    """Return the text of a UTF-8 file, with line feeds for CR LF and without a byte order mark.

    option: what the user named the file with. remedy: what to do instead. only_regular: refuse
    pipes and devices, which may have to be waited for. most: the largest size in bytes.
    if_larger: the remedy for a larger file; None is `remedy`. Raises InvalidValueError for a file
    that cannot be read, is larger, or is no text.
    """
    read = read_regular if only_regular else read_at_most
    try:
        # Some editors write a byte order mark, which is no part of the text.
        text = read(file, most).decode("utf-8").removeprefix("\ufeff")
        problem = "it is no text" if "\0" in text else None
    except OSError as error:
        problem = error.strerror or str(error)
        remedy = (if_larger or remedy) if error.errno == errno.EFBIG else remedy
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} is 0x{error.object[error.start]:02x}"
        problem = f"it is not UTF-8, {byte}"
        remedy = f"convert it, for example with iconv, or {remedy}"
    if problem:
        raise InvalidValueError(f"{option} {printable(str(file))}: {problem}; {remedy}")
    return text.replace("\r\n", "\n")
