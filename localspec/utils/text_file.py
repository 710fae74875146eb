"""Text files that a user names: read, with one line for whatever is wrong with them."""

import codecs
import errno
from pathlib import Path

from localspec.errors import InvalidValueError
from localspec.utils.bounded_file import MOST_TEXT_BYTES, read_at_most, read_regular
from localspec.utils.format import printable

SAVE_IT = "save it as UTF-8"


def is_utf_16(data: bytes) -> bool:
    """Whether text begins with the byte order mark of UTF-16; `>` of PowerShell 5 writes that."""
    return data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def is_pdf(data: bytes) -> bool:
    """Whether a file is a PDF, which is no text."""
    return data.startswith(b"%PDF-")


def decode_text(data: bytes) -> str:
    """Return text that is UTF-8, or UTF-16 with a byte order mark, without that mark.

    Raises UnicodeDecodeError for anything else.
    """
    if is_utf_16(data):
        return data.decode("utf-16")
    return data.decode("utf-8").removeprefix("\ufeff")


def undecodable(error: UnicodeDecodeError) -> str:
    """Say what is wrong with data that `decode_text` refused."""
    byte = f"byte {error.start} is 0x{error.object[error.start]:02x}"
    name = error.encoding.upper().removesuffix("-LE").removesuffix("-BE")
    return f"it is not {name}, {byte}"


def read_text_file(
    option: str,
    file: Path,
    remedy: str,
    *,
    only_regular: bool = False,
    most: int = MOST_TEXT_BYTES,
    if_larger: str | None = None,
) -> str:
    """Return the text of a file (see `decode_text`), with line feeds for CR LF.

    option: what the user named the file with. remedy: what to do instead. only_regular: refuse
    pipes and devices, which may have to be waited for. most: the largest size in bytes.
    if_larger: the remedy for a larger file; None is `remedy`. Raises InvalidValueError for a file
    that cannot be read, is larger, or is no text.
    """
    read = read_regular if only_regular else read_at_most
    try:
        data = read(file, most)
        if is_pdf(data):
            raise InvalidValueError(
                f"{option} {printable(str(file))}: it is a PDF; pdftotext writes its text to a file"
            )
        text = decode_text(data)
        problem = "it is no text" if "\0" in text else None
    except OSError as error:
        problem = error.strerror or str(error)
        remedy = (if_larger or remedy) if error.errno == errno.EFBIG else remedy
    except UnicodeDecodeError as error:
        problem = undecodable(error)
        remedy = f"{SAVE_IT}, or {remedy}"
    if problem:
        raise InvalidValueError(f"{option} {printable(str(file))}: {problem}; {remedy}")
    return text.replace("\r\n", "\n")
